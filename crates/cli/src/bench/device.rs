//! The device's direct sequential write rate, measured in the same run as everything else.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

/// `O_DIRECT` of Linux on x86-64 and on 64-bit Arm.
#[cfg(target_arch = "x86_64")]
const O_DIRECT: i32 = 0o40_000;
#[cfg(not(target_arch = "x86_64"))]
const O_DIRECT: i32 = 0o200_000;

const BLOCK_BYTES: usize = 1024 * 1024;
const ALIGNMENT: usize = 4096;

/// Writes `bytes` directly, in blocks of 1 MiB, twice over one file in `folder` (so that the second
/// pass meets allocated space, as the journal does), and gives bytes per second of the second pass.
///
/// # Errors
/// When the file cannot be made, opened for direct I/O or written.
pub fn sequential_write_rate(folder: &Path, bytes: u64) -> io::Result<f64> {
    std::fs::create_dir_all(folder)?;
    let path = folder.join("device-rate.tmp");
    let result = measure(&path, bytes);
    let removed = std::fs::remove_file(&path);
    let rate = result?;
    removed?;
    Ok(rate)
}

fn measure(path: &Path, bytes: u64) -> io::Result<f64> {
    let file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .custom_flags(O_DIRECT)
        .open(path)?;
    let memory = vec![0xa5_u8; BLOCK_BYTES + ALIGNMENT];
    let skip = memory.as_ptr().align_offset(ALIGNMENT);
    let block = &memory[skip..skip + BLOCK_BYTES];
    pass(&file, block, bytes)?;
    let begun = Instant::now();
    pass(&file, block, bytes)?;
    Ok(bytes as f64 / begun.elapsed().as_secs_f64())
}

fn pass(file: &File, block: &[u8], bytes: u64) -> io::Result<()> {
    let mut position = 0;
    while position < bytes {
        file.write_all_at(block, position)?;
        position += BLOCK_BYTES as u64;
    }
    file.sync_data()
}
