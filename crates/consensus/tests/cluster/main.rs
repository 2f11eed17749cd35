//! Whole groups of replicas in one thread from one seed.

mod harness;

mod a_calm_group_elects_once_and_serves;
mod a_cut_off_replica_disturbs_nobody;
mod a_dead_primary_is_replaced_in_time;
mod a_group_is_frugal_at_rest;
mod a_lost_prepare_is_repaired_without_a_view_change;
mod an_untrusted_replica_learns_before_it_counts;
mod seeds_of_every_fault_keep_every_promise;
