//! Whole groups of replicas in one thread from one seed.

mod harness;

mod a_calm_group_elects_once_and_serves;
mod seeds_of_every_fault_keep_every_promise;
