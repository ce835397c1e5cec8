//! Counts of the faults that were injected and of the requests that processes posted.

use stentor_fabric::Verb;

/// Declares a struct of named counters that can be added up. A counter has its field's name, or the one after `as`.
#[macro_export]
macro_rules! counts {
    ($(#[$about:meta])* $type:ident { $($(#[$doc:meta])* $field:ident $(as $name:literal)?,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $type {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl $type {
            /// Returns names and values, in a fixed order.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$(($crate::counts!(@name $field $($name)?), self.$field),)*]
            }

            /// Adds other counts.
            pub fn add(&mut self, other: &$type) {
                $(self.$field += other.$field;)*
            }
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };
}

counts! {
    /// Number of occurrences of each fault.
    FaultCounts {
        /// Messages that executed after a message that was posted later, on another queue pair between the same
        /// processes (rule 1 of the contract).
        reordered_across_queue_pairs,
        /// Messages that executed after a message that was posted later on the same queue pair (rule 5 of the contract;
        /// only where writes are unordered, or on unreliable queue pairs).
        reordered_on_one_queue_pair,
        /// Writes, received messages and results of READs that became visible in several steps (rule 2).
        torn_writes,
        /// Steps that a process ran while a write was partly in its memory.
        steps_on_torn_memory,
        /// Successes reported before the responder's CPU saw the data (rule 3).
        early_completions,
        /// Writes, received messages and results of requests that the CPU saw much later.
        late_writes,
        /// READs that sampled their words at different times (rule 4).
        torn_reads,
        /// Requests whose source was read after the post.
        late_source_reads,
        /// Revocations of granted access that took effect.
        revocations,
        /// Writes that were in flight, or executed but not yet visible, when a revocation took effect.
        writes_in_flight_at_revocation,
        /// Writes that landed in part at a revocation, and then failed.
        partial_writes_at_revocation,
        /// Writes that landed in part because their process crashed in the middle of them.
        partial_writes_at_crash,
        /// Writes that landed after the responder had broken their connection, but before it had a new one.
        writes_after_break,
        /// Requests refused by the responder's NIC.
        remote_access_errors,
        /// Messages lost on unreliable queue pairs.
        lost_unreliable,
        /// Attempts to deliver a message that found no receive posted.
        rnr_retries,
        /// Queue pairs that broke because no receive was posted for too long.
        rnr_exceeded,
        /// Queue pairs that broke because no answer arrived.
        retry_exceeded,
        /// Work requests and receives that were flushed.
        flushed,
        /// Messages and answers held back by a partition.
        held_by_partition,
        /// Planned partitions in both directions.
        partitions,
        /// Planned partitions and cuts in one direction.
        one_way_partitions,
        /// Crashes of processes.
        crashes,
        /// Crashes right after a post.
        crashes_at_a_post,
        /// Restarts of processes.
        restarts,
        /// Stalls of processes.
        stalls,
        /// Jumps of clocks.
        clock_jumps,
    }
}

counts! {
    /// Counts of the network's work with sets.
    SetCounts {
        /// Lives of sets.
        lives as "set_lives",
        /// Lives that lack at least one member of the set.
        partial_lives as "partial_set_lives",
        /// Ends of sets that broke.
        breaks as "set_breaks",
        /// Writes that were posted.
        writes as "set_writes",
        /// Copies of these writes.
        copies as "set_copies",
        /// Writes that were outstanding at a break.
        unfinished as "unfinished_set_writes",
        /// Writes that were outstanding at a break when some, but not all of their copies had landed.
        partial_writes as "partial_set_writes",
        /// Copies that landed after their sender had noticed the break of the set, or had crashed.
        late_copies,
    }
}

counts! {
    /// Number of posts by verb, and the bytes that they carried.
    VerbCounts {
        /// Number of WRITEs.
        write,
        /// Number of WRITE_WITH_IMMs.
        write_imm,
        /// Number of READs.
        read,
        /// Number of SENDs.
        send,
        /// Number of compare-and-swaps.
        compare_swap,
        /// Number of fetch-and-adds.
        fetch_add,
        /// Number of tagged sends.
        tagged_send,
        /// Sum of the requested data, in bytes.
        bytes,
    }
}

impl VerbCounts {
    pub(crate) fn count(&mut self, verb: &Verb<'_>, bytes: u64) {
        *match verb {
            Verb::Write { .. } => &mut self.write,
            Verb::WriteImm { .. } => &mut self.write_imm,
            Verb::Read { .. } => &mut self.read,
            Verb::Send { .. } => &mut self.send,
            Verb::CompareSwap { .. } => &mut self.compare_swap,
            Verb::FetchAdd { .. } => &mut self.fetch_add,
            Verb::TaggedSend { .. } => &mut self.tagged_send,
        } += 1;
        self.bytes += bytes;
    }

    /// Returns the number of posts of all verbs.
    #[must_use]
    pub fn posts(&self) -> u64 {
        self.write + self.write_imm + self.read + self.send + self.compare_swap + self.fetch_add + self.tagged_send
    }
}

/// Posts of one process, over all its lives.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProcessCounts {
    /// Posts by target, indexed by process.
    pub to: Vec<VerbCounts>,
    /// Number of writes to sets. Each is one post, whatever the number of its copies, and is not counted in `to`.
    pub set_writes: u64,
    /// Number of copies of these writes, by target.
    pub set_copies: Vec<u64>,
    /// Number of steps that the process ran.
    pub steps: u64,
}

impl ProcessCounts {
    /// Returns the sum over all targets.
    #[must_use]
    pub fn total(&self) -> VerbCounts {
        let mut total = VerbCounts::default();
        for counts in &self.to {
            total.add(counts);
        }
        total
    }
}
