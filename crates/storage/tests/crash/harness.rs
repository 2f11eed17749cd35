//! The `main` of a test target that counts: runs named cases on all cores and prints what each has
//! tried, so that the counts stand in the normal output of the tests. Understands what the
//! standard test runner is usually asked: filters, `--exact`, `--skip`, `--list`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// What was tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Places at which the world was stopped.
    pub crash_points: u64,
    /// Directories that a node was started from.
    pub images: u64,
    /// Places inside a start at which the world was stopped once more.
    pub second_crashes: u64,
}

impl Counts {
    pub fn add(&mut self, other: Self) {
        self.crash_points += other.crash_points;
        self.images += other.images;
        self.second_crashes += other.second_crashes;
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { crash_points, images, second_crashes } = self;
        write!(f, "{images} images of {crash_points} crashes, {second_crashes} inside a start")
    }
}

/// One test.
pub struct Case {
    pub name: &'static str,
    pub run: fn() -> Counts,
}

/// What all cases together must reach.
pub struct Demand {
    pub images_min: u64,
    /// Processor time, so that a busy machine changes nothing.
    pub cpu_seconds_max: f64,
}

#[derive(Default)]
struct Arguments {
    filters: Vec<String>,
    skips: Vec<String>,
    exact: bool,
    list: bool,
    ignored: bool,
}

impl Arguments {
    fn read() -> Self {
        let mut arguments = Self::default();
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--exact" => arguments.exact = true,
                "--list" => arguments.list = true,
                "--ignored" => arguments.ignored = true,
                "--skip" => arguments.skips.extend(words.next()),
                "--test-threads" | "--format" | "--color" | "--logfile" | "-Z" => {
                    words.next();
                }
                flag if flag.starts_with('-') => {}
                filter => arguments.filters.push(filter.to_owned()),
            }
        }
        arguments
    }

    fn wants(&self, name: &str) -> bool {
        let matches =
            |word: &String| if self.exact { name == *word } else { name.contains(word.as_str()) };
        let chosen = self.filters.is_empty() || self.filters.iter().any(matches);
        chosen && !self.skips.iter().any(matches) && !self.ignored
    }
}

/// Runs what the command line asks for. The demand holds only when everything is run.
pub fn main(cases: &[Case], demand: &Demand) -> ExitCode {
    let arguments = Arguments::read();
    let chosen: Vec<&Case> = cases.iter().filter(|case| arguments.wants(case.name)).collect();
    if arguments.list {
        chosen.iter().for_each(|case| println!("{}: test", case.name));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", chosen.len());
    let began = Instant::now();
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<Counts>>> = Mutex::default();
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(case) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let counts = catch_unwind(AssertUnwindSafe(case.run)).ok();
                    match counts {
                        Some(counts) => println!("test {} ... ok ({counts})", case.name),
                        None => println!("test {} ... FAILED", case.name),
                    }
                    results.lock().unwrap_or_else(PoisonError::into_inner).push(counts);
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut failed = results.iter().filter(|counts| counts.is_none()).count();
    let mut total = Counts::default();
    results.iter().flatten().for_each(|counts| total.add(*counts));
    let cpu_seconds = cpu_seconds();
    println!("together: {total}, {cpu_seconds:.1} s of processor time");
    if failed == 0 && chosen.len() == cases.len() {
        if total.images < demand.images_min {
            println!("FAILED: fewer than {} images", demand.images_min);
            failed += 1;
        }
        if cpu_seconds > demand.cpu_seconds_max {
            println!("FAILED: more than {} s", demand.cpu_seconds_max);
            failed += 1;
        }
    }
    println!(
        "\ntest result: {}. {} passed; {failed} failed; 0 ignored; 0 measured; {} filtered out; \
         finished in {:.2}s\n",
        if failed == 0 { "ok" } else { "FAILED" },
        results.iter().flatten().count(),
        cases.len() - chosen.len(),
        began.elapsed().as_secs_f64(),
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(101) }
}

/// Processor time of this process in seconds; 0 where the system does not tell.
fn cpu_seconds() -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    (ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / TICKS_PER_SECOND
}
