//! The faults of the nemesis, as data, and the counts of their occurrences.

use stentor_fabric::ProcessId;
use stentor_multicast::{ClientId, GroupId};

/// The process that a fault hits. A plan may name the leader at the time of the fault, since leaders change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The process with this id.
    Process(ProcessId),
    /// The process that was last named leader of the group.
    Leader(GroupId),
}

/// A fault of processes, links or the election. Times are in nanoseconds of virtual time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The process crashes and loses its memory. It is restarted later, or only after all faults have stopped.
    Crash {
        /// The process that crashes.
        who: Target,
        /// Time from the crash to the restart. `None`: it is restarted when all faults have stopped.
        back_after_ns: Option<u64>,
    },
    /// The process crashes right after its n-th post from now, and loses its memory.
    CrashAtPost {
        /// The process that crashes.
        who: Target,
        /// Number of posts until the crash, at least 1.
        post: u64,
        /// Time from the crash to the restart. `None`: it is restarted when all faults have stopped.
        back_after_ns: Option<u64>,
    },
    /// A client crashes right after its n-th write from now. Another process takes over its client id, or no process
    /// ever does.
    ClientCrashAfterWrite {
        /// The client id.
        client: ClientId,
        /// Number of writes until the crash, at least 1.
        write: u64,
        /// Time from the crash until the next process takes over the id. `None`: never, or when the faults stop.
        back_after_ns: Option<u64>,
    },
    /// All packets from a client, which is up, to the members of a group are lost. The other direction is unaffected.
    CutClient {
        /// The client id.
        client: ClientId,
        /// The group that the client cannot reach.
        group: GroupId,
        /// Duration of the fault.
        for_ns: u64,
    },
    /// All packets from a client to one member are lost. The other direction is unaffected.
    CutMember {
        /// The client id.
        client: ClientId,
        /// The member that the client cannot reach.
        member: ProcessId,
        /// Duration of the fault.
        for_ns: u64,
    },
    /// All packets between a group's leader and its other members, and between it and all clients except one, are lost
    /// in both directions.
    PartLeader {
        /// The group.
        group: GroupId,
        /// The client that still reaches all processes.
        except: ClientId,
        /// Duration of the fault.
        for_ns: u64,
    },
    /// All packets from `from` to `to` are lost. The other direction is unaffected. `None` represents all other
    /// processes.
    Cut {
        /// The senders.
        from: Option<Target>,
        /// The receivers.
        to: Option<Target>,
        /// Duration of the fault.
        for_ns: u64,
    },
    /// All packets to the process and from it are lost.
    Isolate {
        /// The isolated process.
        who: Target,
        /// Duration of the fault.
        for_ns: u64,
    },
    /// The process crashes and loses its memory, independent of how many other processes have lost their memory. It is
    /// restarted later.
    Lose {
        /// The process, a member or a client.
        who: ProcessId,
        /// Time from the crash to the restart.
        back_after_ns: u64,
    },
    /// A member with memory does not run while the other members of its group lose their memory.
    Survive {
        /// The member.
        who: ProcessId,
        /// Duration of the fault.
        for_ns: u64,
    },
    /// The process does not run. Its NIC continues to serve its memory.
    Stall {
        /// The process.
        who: Target,
        /// Duration of the fault.
        for_ns: u64,
    },
    /// No member of a group runs. The members' NICs continue to serve their memory.
    Silence {
        /// The group.
        group: GroupId,
        /// Duration of the fault.
        for_ns: u64,
    },
    /// The process is stopped for so long that windows and rings fill up. Its NIC continues to serve its memory. Only a
    /// minority of each group is stopped at once.
    Stop {
        /// The process.
        who: Target,
        /// Duration of the fault.
        for_ns: u64,
    },
    /// The election names this process as the leader, whether the last leader is up or not, and whether this process is
    /// up or not.
    Suspect {
        /// The group.
        group: GroupId,
        /// The new leader.
        leader: ProcessId,
    },
    /// In every period, the election reports a random leader, or none, to one random member of the group.
    Flap {
        /// The group.
        group: GroupId,
        /// Length of a period, in nanoseconds.
        period_ns: u64,
        /// Duration of the fault.
        for_ns: u64,
    },
    /// An operator requests another leader, for maintenance.
    HandOver {
        /// The group.
        group: GroupId,
        /// The new leader.
        to: ProcessId,
    },
}

/// A fault with its time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Planned {
    /// Time of the fault, in nanoseconds of virtual time.
    pub at_ns: u64,
    /// The fault.
    pub fault: Fault,
}

stentor_fabric_sim::counts! {
    /// Number of each kind of fault, and of its effects.
    NemesisCounts {
        /// Leaders that crashed.
        leader_crashes,
        /// Other members that crashed.
        follower_crashes,
        /// Members that crashed at a post, in the middle of a step.
        member_crashes_at_a_post,
        /// Members that crashed while another member of their group was down, without memory or about to crash.
        double_crashes,
        /// Members that crashed after another leader was named and before one was ready.
        crashes_during_recovery,
        /// Members that were restarted without memory.
        member_restarts,
        /// Members that received their group's state while clients were sending.
        rejoins_under_load,
        /// Client processes that crashed, and those that the nemesis crashed because they had ended.
        client_crashes,
        /// Clients that crashed after a write and whose id no process took over.
        clients_gone,
        /// Clients that were declared failed while they were up, and ended when they learnt it.
        clients_superseded,
        /// Clients whose packets to one of the groups were lost.
        clients_cut_off,
        /// Leaders that were cut off from their group and from all clients except one.
        leaders_parted,
        /// Groups of which no member ran for some time.
        silent_groups,
        /// Client processes that multicast their first message while a group was silent.
        clients_begun_beside_a_silent_group,
        /// Members that for some time received no packets from one client.
        late_links,
        /// Bodies that a member held or had delivered already when the client's own write arrived.
        bodies_held_already,
        /// Credits that freed ring space but no slot.
        space_credits,
        /// Submissions that a client refused because a ring or a send queue was full.
        ring_waits,
        /// Leaders that received no packets: they continue to write, because no notification to stop reaches them.
        deaf_leaders,
        /// Leaders whose packets were lost.
        mute_leaders,
        /// Links that were cut in one direction.
        cut_links,
        /// Processes that were cut off in both directions.
        isolations,
        /// Leaders that did not run for some time.
        slow_leaders,
        /// Other processes that did not run for some time.
        stalled_followers,
        /// Leaders that were stopped for so long that windows and rings fill up.
        leaders_stopped,
        /// Followers that were stopped for so long that windows and rings fill up.
        followers_stopped,
        /// Clients that were stopped for so long that windows and rings fill up.
        clients_stopped,
        /// Processes that were stopped for so long that windows and rings fill up, while another process was stopped,
        /// too.
        several_stopped,
        /// Members that another member expelled because they freed nothing.
        members_expelled,
        /// Members that a client expelled.
        members_expelled_by_clients,
        /// Leaders that were deposed although they were up.
        false_suspicions,
        /// Processes that were named leader although they were down or without memory.
        dead_leaders_named,
        /// Changes of flapping elections.
        flaps,
        /// Leaders that were changed on request.
        hand_overs,
        /// Processes that the nemesis crashed without regard to the budget of failures, so that they lost their memory.
        memories_lost,
        /// Clients that ended because a group had begun anew.
        clients_told_of_resets,
        /// Members that did not run while other members of their group lost their memory.
        survivors_silent,
        /// Faults that were omitted because too many members would have been down or stopped at once.
        beyond_the_budget,
    }
}
