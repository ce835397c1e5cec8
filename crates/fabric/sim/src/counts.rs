//! What was done to the processes, and what they did: counted, so that nobody has to believe it.

use stentor_fabric::Verb;

/// Declares a struct of counts that can be named and added up. A count has its field's name, or the one behind `as`.
#[macro_export]
macro_rules! counts {
    ($(#[$about:meta])* $type:ident { $($(#[$doc:meta])* $field:ident $(as $name:literal)?,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $type {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl $type {
            /// Names and values, in a fixed order.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$(($crate::counts!(@name $field $($name)?), self.$field),)*]
            }

            /// Adds those of another run.
            pub fn add(&mut self, other: &$type) {
                $(self.$field += other.$field;)*
            }
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };
}

counts! {
    /// How often each fault happened.
    FaultCounts {
        /// Messages that executed after a later one on another queue pair between the same processes (rule 1).
        reordered_across_queue_pairs,
        /// Messages that executed after a later one on the same queue pair (rule 5; only where writes are unordered).
        reordered_on_one_queue_pair,
        /// Writes that became visible in several steps (rule 2).
        torn_writes,
        /// Times that a process ran while a write was partly in its memory.
        steps_on_torn_memory,
        /// Successes reported before the responder's CPU saw the data (rule 3).
        early_completions,
        /// Writes that the CPU saw much later.
        late_writes,
        /// READs that sampled their words at different times (rule 4).
        torn_reads,
        /// Requests whose source was read long after the post.
        late_source_reads,
        /// Revocations that took effect.
        revocations,
        /// Writes that were in flight, or executed but not yet visible, when a revocation took effect.
        writes_in_flight_at_revocation,
        /// Writes that landed in part at a revocation, and then failed.
        partial_writes_at_revocation,
        /// Writes that landed in part because their process crashed in the middle of them.
        partial_writes_at_crash,
        /// Writes that landed although the responder had given up their connection, before there was a new one.
        writes_after_break,
        /// Requests refused by the responder's NIC.
        remote_access_errors,
        /// Messages lost on unreliable queue pairs.
        lost_unreliable,
        /// Attempts that found no receive posted.
        rnr_retries,
        /// Queue pairs that broke because no receive was posted for too long.
        rnr_exceeded,
        /// Queue pairs that broke for want of an answer.
        retry_exceeded,
        /// Work requests flushed.
        flushed,
        /// Messages held back by a partition.
        held_by_partition,
        /// Partitions, both ways.
        partitions,
        /// Partitions in one direction.
        one_way_partitions,
        /// Crashes.
        crashes,
        /// Crashes between two posts of one step.
        crashes_at_a_post,
        /// Restarts.
        restarts,
        /// Stalls.
        stalls,
        /// Clocks that jumped.
        clock_jumps,
    }
}

counts! {
    /// What the network did with sets.
    SetCounts {
        /// Lives of sets that the network made.
        lives as "set_lives",
        /// Of those: without somebody who is in the set.
        partial_lives as "partial_set_lives",
        /// Ends of sets that broke.
        breaks as "set_breaks",
        /// Writes that were posted.
        writes as "set_writes",
        /// Copies of them.
        copies as "set_copies",
        /// Writes that were outstanding at a break.
        unfinished as "unfinished_set_writes",
        /// Of those: some copies had landed, and others had not.
        partial_writes as "partial_set_writes",
        /// Copies that landed after their sender had heard that the set broke, or had crashed.
        late_copies,
    }
}

counts! {
    /// Posts by verb, and the bytes they carried.
    VerbCounts {
        /// WRITEs.
        write,
        /// WRITE_WITH_IMMs.
        write_imm,
        /// READs.
        read,
        /// SENDs.
        send,
        /// Compare-and-swaps.
        compare_swap,
        /// Fetch-and-adds.
        fetch_add,
        /// Tagged sends.
        tagged_send,
        /// Bytes of data asked to be moved.
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

    /// Posts of all verbs.
    #[must_use]
    pub fn posts(&self) -> u64 {
        self.write + self.write_imm + self.read + self.send + self.compare_swap + self.fetch_add + self.tagged_send
    }
}

/// What one process posted, over all its lives.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProcessCounts {
    /// By target, indexed by process.
    pub to: Vec<VerbCounts>,
    /// Writes to sets, each one post, whatever the number of copies. What goes to a target by them is not in `to`.
    pub set_writes: u64,
    /// Copies of them, by target.
    pub set_copies: Vec<u64>,
    /// Steps it ran.
    pub steps: u64,
}

impl ProcessCounts {
    /// To all targets together.
    #[must_use]
    pub fn total(&self) -> VerbCounts {
        let mut total = VerbCounts::default();
        for counts in &self.to {
            total.add(counts);
        }
        total
    }
}
