//! Whole nodes, three of them, in one thread: what a cluster promises.

#![allow(clippy::unwrap_used, reason = "tests")]

mod agree;
mod requests;
#[path = "../support/mod.rs"]
mod support;
mod world;

mod a_failed_node_changes_nothing_that_was_confirmed;
mod a_node_that_is_far_behind_copies_a_checkpoint;
mod a_power_cut_of_the_whole_cluster_loses_nothing_it_must_not;
mod a_stopping_node_hands_its_lanes_over;
mod empty_nodes_found_or_join_a_cluster;
mod reads_are_answered_only_by_who_still_leads;
mod seeds_of_faults_keep_what_was_confirmed;
