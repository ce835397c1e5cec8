//! Test tools for fabrics, and for the layers above them.
//!
//! - [`suite`] runs the same cases against every fabric.
//! - [`FaultInjector`] wraps a fabric and reorders requests and completions, as EFA may do.
//!
//! # The suite
//! A fabric's tests create a [`Testbed`], then call [`suite`] and [`Report::assert_ok`]. A case is skipped only if the
//! fabric's [`Capabilities`](stentor_fabric::Capabilities) lack what the case tests, or if the testbed cannot
//! [`cut`](Testbed::cut) links. The suite needs no test framework. It reports contract violations and does not panic
//! because of them.
#![forbid(unsafe_code)]

mod access;
mod atomic;
mod bed;
mod capabilities;
mod connection;
mod faults;
mod fence;
mod forward;
mod heartbeat;
mod imm;
mod link;
mod loopback;
mod merge;
mod post_errors;
mod processes;
mod queue;
mod read;
mod readers;
mod registration;
mod report;
mod restart;
mod revoke;
mod ring;
mod send;
mod set;
mod source;
mod tagged;
mod unreliable;
mod wait;
mod write;

use bed::{Bed, Outcome};
use stentor_fabric::{Fabric, ProcessId};

pub use faults::{FaultInjector, Faults};
pub use processes::{Processes, loopback_addresses};
pub use report::{CaseReport, Report, Verdict};

/// Processes whose fabrics the suite may use in any order, from one thread.
pub trait Testbed {
    /// The fabric under test.
    type F: Fabric;

    /// Returns the number of processes.
    fn processes(&self) -> usize;

    /// Returns the fabric of a process.
    fn fabric(&mut self, process: ProcessId) -> &mut Self::F;

    /// Lets a little time pass, and drives the network if it does not drive itself.
    fn advance(&mut self);

    /// Kills a process without notifying its peers. Its memory is lost, and its fabric is not used until
    /// [`restart`](Testbed::restart).
    fn crash(&mut self, process: ProcessId);

    /// Starts the next life of a crashed process: a new fabric with the same id, on which nothing is registered.
    fn restart(&mut self, process: ProcessId);

    /// Holds back everything on the path from one process to another until [`heal`](Testbed::heal). Queue pairs that
    /// wait for data on this path break after their retries. Returns whether this testbed can do that.
    fn cut(&mut self, from: ProcessId, to: ProcessId) -> bool {
        let _ = (from, to);
        false
    }

    /// Ends a cut; the packets that were held back continue.
    fn heal(&mut self, from: ProcessId, to: ProcessId) {
        let _ = (from, to);
    }

    /// Returns the number of repetitions of operations that must work any number of times.
    fn repeats(&self) -> u64 {
        8
    }

    /// Returns the number of [`advance`](Testbed::advance)s after which everything in flight has usually arrived.
    fn settling(&self) -> usize {
        500
    }

    /// Returns the maximum number of [`advance`](Testbed::advance)s to wait for an event or a condition. The longest
    /// wait is for a queue pair that breaks after its retries.
    fn patience(&self) -> usize {
        40_000
    }
}

struct Case<T: Testbed> {
    name: &'static str,
    processes: usize,
    run: fn(&mut Bed<T>) -> Outcome,
}

macro_rules! cases {
    ($($topic:ident: $($case:ident($processes:literal)),+;)+) => {
        vec![$($(Case {
            name: concat!(stringify!($topic), "::", stringify!($case)),
            processes: $processes,
            run: $topic::$case,
        },)+)+]
    };
}

fn cases<T: Testbed>() -> Vec<Case<T>> {
    cases! {
        registration: regions_are_zeroed_and_sized(2), errors(2);
        connection: both_ends_connect(2), services_are_separate(2), errors(2), reset_after_an_error(2),
            one_end_disconnects(2);
        access: grants_travel(2), errors(3), writes_outside_the_region_are_refused(2), other_peers_are_refused(3),
            rights_are_enforced(2), refusals_of_unsignalled_requests_are_reported(2),
            nothing_after_a_refusal_takes_effect(2);
        write: lands_whole(2), in_order_on_one_queue_pair(2), last_write_wins(2), both_ways_at_once(2);
        ring: thousands_of_records(2), slots_show_the_newest(2);
        imm: notification_follows_the_data(2), waits_for_a_receive(2), breaks_without_a_receive(2),
            receives_are_bounded(2), notifications_are_late_but_not_lost(2), recovers_after_the_retry_limit(2);
        merge: everything_lands_and_is_reported_once(2), completions_come_in_order(2),
            other_requests_keep_their_order(2), every_part_of_a_refused_write_is_reported(2),
            unflushed_requests_fail_with_the_connection(2);
        read: completed_writes_are_read(2), stores_of_the_owner_are_read(2), many_words_are_read(2);
        readers: readers_read_and_never_write(3), one_reader_loses_access_and_the_others_keep_it(3);
        loopback: writes_and_reads(1), own_access_is_limited(1);
        send: all_lengths_in_order(2), too_long_for_the_receive(2);
        atomic: compare_and_swap(2), fetch_and_add(2), atomic_among_themselves(2);
        queue: inline_limit(2), bounded_and_freed_by_signalled(2), one_completion_per_signalled(2),
            poll_and_wait_flush(2);
        source: source_is_free_after_a_later_completion(2), inline_source_is_free_at_once(2);
        revoke: later_writes_are_refused(2), completed_writes_are_kept(2), new_grant_has_a_fresh_key(2);
        restart: the_next_life_connects(2), granted_regions_stay_granted(2), old_regions_are_refused(2),
            no_late_write_lands_after_connected(2), memory_is_fresh_after_revoke_and_grant(2),
            services_reconnect_one_by_one(2), both_processes_restart_at_once(2), absent_process_blocks_no_other(3);
        link: other_end_learns_of_the_break(2), both_ends_break_at_once(2), services_are_independent(2),
            completions_precede_disconnected(2), receives_end_with_the_connection(2),
            no_late_write_lands_after_connected(2), grants_arrive_while_broken(2), survives_a_cut(2);
        fence: only_the_revoked_region_is_fenced(2), repeated_fences_hold(2), contents_belong_to_the_owner(2),
            idle_peer_is_fenced_without_a_break(2), crashed_peer_is_fenced(2);
        heartbeat: counts_up(2), stops_with_the_process(2);
        wait: woken_by_a_write(2), poll_hint_names_each_writer(2), times_out(2), ended_by_another_thread(2),
            wakes_between_arming_and_sleeping_count(2), wakes_before_arming_do_not(2),
            a_wake_makes_the_descriptor_readable(2);
        capabilities: constant_and_sane(2), honest(2), bytes_in_order_if_claimed(2);
        post_errors: one_by_one(2);
        set: refused_without_the_capability(2), copies_reach_exactly_the_targets(3), errors(3),
            bounded_and_freed_by_signalled(3), in_order_at_each_target(3), one_refusal_breaks_it_for_all(3),
            crashed_process_is_left_out(3), queue_pairs_survive_failures_of_the_set(3), settled_means_nothing_lands(3),
            no_write_of_an_earlier_life_lands(3), survives_a_cut(3);
        tagged: exact_and_masked_tags_match(2), unexpected_messages_wait(2), masks_match_unexpected_messages(2),
            cancelled_receives_complete_once(2);
        unreliable: lossy_but_unbroken(2), only_send_and_write(2);
    }
}

/// Returns the names of all cases.
#[must_use]
pub fn names<T: Testbed>() -> Vec<&'static str> {
    cases::<T>().into_iter().map(|case| case.name).collect()
}

/// Runs every case on a separate testbed, which `make` creates with the given number of processes.
pub fn suite<T: Testbed>(make: impl FnMut(usize) -> T) -> Report {
    suite_of(make, |_| true)
}

/// Runs the cases for whose names `wanted` returns true.
pub fn suite_of<T: Testbed>(mut make: impl FnMut(usize) -> T, wanted: impl Fn(&str) -> bool) -> Report {
    let mut report = Report::default();
    for case in cases::<T>().into_iter().filter(|case| wanted(case.name)) {
        let mut bed = Bed::new(make(case.processes));
        let outcome = bed.check_size(case.processes).and_then(|()| (case.run)(&mut bed));
        report.add(case.name, outcome.into());
    }
    report
}
