//! Whole groups of replicas in one thread from one seed.

#![allow(clippy::print_stdout)] // Traces and measurements, for whoever runs with --nocapture.

mod harness;

mod a_calm_group_elects_once_and_serves;
mod a_cut_off_replica_disturbs_nobody;
mod a_damaged_committed_operation_is_never_discarded;
mod a_dead_primary_is_replaced_in_time;
mod a_group_is_frugal_at_rest;
mod a_lost_prepare_is_repaired_without_a_view_change;
mod an_untrusted_replica_learns_before_it_counts;
mod seeds_of_every_fault_keep_every_promise;
mod well_formed_nonsense_never_panics_a_replica;
