//! Every scenario under `scenarios/`, one test each; the file says what it is about.

use borzoi_simulator::scenario;
use borzoi_simulator::trace::Keep;
use std::collections::BTreeSet;

macro_rules! scenarios {
    ($($name:ident: $file:literal,)*) => {
        $(
            #[test]
            fn $name() {
                let text = include_str!(concat!("../scenarios/", $file, ".txt"));
                if let Err(failure) = scenario::run(text, Keep::Last(60)) {
                    let trace = failure.trace.join("\n");
                    panic!("{trace}\n{}\n{}: {}", failure.state, $file, failure.message);
                }
            }
        )*

        const FILES: &[&str] = &[$($file,)*];
    };
}

scenarios! {
    checkpoint_fails: "checkpoint-fails",
    clean_stop: "clean-stop",
    clean_stop_under_load: "clean-stop-under-load",
    client_resends_over_a_power_cut: "client-resends-over-a-power-cut",
    client_resends_over_a_restart: "client-resends-over-a-restart",
    clock_steps_back: "clock-steps-back",
    clock_steps_forward: "clock-steps-forward",
    damaged_index: "damaged-index",
    damaged_middle_record_end: "damaged-middle-record-end",
    damaged_middle_record_header: "damaged-middle-record-header",
    damaged_middle_record_middle: "damaged-middle-record-middle",
    damaged_newest_checkpoint: "damaged-newest-checkpoint",
    damaged_oldest_record_end: "damaged-oldest-record-end",
    damaged_oldest_record_header: "damaged-oldest-record-header",
    damaged_oldest_record_middle: "damaged-oldest-record-middle",
    damaged_record_in_a_checkpoint: "damaged-record-in-a-checkpoint",
    damaged_superblock_copy_0: "damaged-superblock-copy-0",
    damaged_superblock_copy_1: "damaged-superblock-copy-1",
    damaged_superblock_copy_2: "damaged-superblock-copy-2",
    damaged_superblock_copy_3: "damaged-superblock-copy-3",
    delete_and_create_again: "delete-and-create-again",
    delete_and_create_under_load: "delete-and-create-under-load",
    delete_on_a_full_disk: "delete-on-a-full-disk",
    disk_full: "disk-full",
    disk_stuck: "disk-stuck",
    every_checkpoint_damaged: "every-checkpoint-damaged",
    first_start: "first-start",
    flush_fails: "flush-fails",
    flush_fails_then_power_cut: "flush-fails-then-power-cut",
    journal_recycled: "journal-recycled",
    killed_at_each_step_of_large_messages: "killed-at-each-step-of-large-messages",
    killed_at_each_step_of_sending_persisted: "killed-at-each-step-of-sending-persisted",
    killed_at_each_step_of_sending_replicated: "killed-at-each-step-of-sending-replicated",
    killed_at_each_step_of_the_start: "killed-at-each-step-of-the-start",
    killed_at_each_step_of_the_stop: "killed-at-each-step-of-the-stop",
    killed_at_each_step_of_topics: "killed-at-each-step-of-topics",
    killed_persisted: "killed-persisted",
    killed_replicated: "killed-replicated",
    old_directory_restored: "old-directory-restored",
    other_shards: "other-shards",
    power_at_each_step_of_large_messages: "power-at-each-step-of-large-messages",
    power_at_each_step_of_sending_persisted: "power-at-each-step-of-sending-persisted",
    power_at_each_step_of_sending_replicated: "power-at-each-step-of-sending-replicated",
    power_at_each_step_of_the_start: "power-at-each-step-of-the-start",
    power_at_each_step_of_the_stop: "power-at-each-step-of-the-stop",
    power_at_each_step_of_topics: "power-at-each-step-of-topics",
    power_cut_persisted_keeping: "power-cut-persisted-keeping",
    power_cut_persisted_losing: "power-cut-persisted-losing",
    power_cut_persisted_tearing: "power-cut-persisted-tearing",
    power_cut_replicated_keeping: "power-cut-replicated-keeping",
    power_cut_replicated_losing: "power-cut-replicated-losing",
    power_cut_replicated_tearing: "power-cut-replicated-tearing",
    process_paused: "process-paused",
    second_crash_before_the_first_reply: "second-crash-before-the-first-reply",
    second_crash_replicated: "second-crash-replicated",
    start_on_a_full_disk: "start-on-a-full-disk",
    write_fails: "write-fails",
}

#[test]
fn every_scenario_that_lies_there_is_run() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");
    let there: BTreeSet<String> = std::fs::read_dir(folder)
        .expect("the folder of scenarios")
        .map(|entry| entry.expect("an entry").path())
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    let run: BTreeSet<String> = FILES.iter().map(|&file| file.to_owned()).collect();
    assert_eq!(there, run);
    assert!(run.len() >= 50, "{} scenarios", run.len());
}
