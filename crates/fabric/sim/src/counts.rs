//! What was done to the processes, and what they did: counted, so that nobody has to believe it.

use stentor_fabric::Verb;

macro_rules! fault_counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// How often each fault happened.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct FaultCounts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl FaultCounts {
            /// Names and values, in a fixed order.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }

            /// Adds those of another run.
            pub fn add(&mut self, other: &FaultCounts) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

fault_counts! {
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

/// What the network did with sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetCounts {
    /// Lives of sets that the network made.
    pub lives: u64,
    /// Of those: without somebody who is in the set.
    pub partial_lives: u64,
    /// Ends of sets that broke.
    pub breaks: u64,
    /// Writes that were posted.
    pub writes: u64,
    /// Copies of them.
    pub copies: u64,
    /// Writes that were outstanding at a break.
    pub unfinished: u64,
    /// Of those: some copies had landed, and others had not.
    pub partial_writes: u64,
    /// Copies that landed after their sender had heard that the set broke, or had crashed.
    pub late_copies: u64,
}

impl SetCounts {
    /// Names and values, in a fixed order.
    #[must_use]
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("set_lives", self.lives),
            ("partial_set_lives", self.partial_lives),
            ("set_breaks", self.breaks),
            ("set_writes", self.writes),
            ("set_copies", self.copies),
            ("unfinished_set_writes", self.unfinished),
            ("partial_set_writes", self.partial_writes),
            ("late_copies", self.late_copies),
        ]
    }
}

/// Posts by verb, and the bytes they carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VerbCounts {
    /// WRITEs.
    pub write: u64,
    /// WRITE_WITH_IMMs.
    pub write_imm: u64,
    /// READs.
    pub read: u64,
    /// SENDs.
    pub send: u64,
    /// Compare-and-swaps.
    pub compare_swap: u64,
    /// Fetch-and-adds.
    pub fetch_add: u64,
    /// Tagged sends.
    pub tagged_send: u64,
    /// Bytes of data asked to be moved.
    pub bytes: u64,
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

    /// Adds others.
    pub fn add(&mut self, other: &VerbCounts) {
        self.write += other.write;
        self.write_imm += other.write_imm;
        self.read += other.read;
        self.send += other.send;
        self.compare_swap += other.compare_swap;
        self.fetch_add += other.fetch_add;
        self.tagged_send += other.tagged_send;
        self.bytes += other.bytes;
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
