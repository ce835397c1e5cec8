//! What the nemesis does, as data, and how often it did it.

use stentor_fabric::ProcessId;
use stentor_multicast::{ClientId, GroupId};

/// Who is hit. Leaders change, so a plan names them by what they are at that time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// This process.
    Process(ProcessId),
    /// Whoever was last named leader of the group.
    Leader(GroupId),
}

/// Something that goes wrong, with processes, with links or with the election. Times in ns of virtual time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The process and its memory are gone; it comes back later, or only when all faults are over.
    Crash {
        /// Who.
        who: Target,
        /// When it is restarted, counted from the crash; `None`: when all faults are over.
        back_after_ns: Option<u64>,
    },
    /// The same, right after its n-th post from now.
    CrashAtPost {
        /// Who.
        who: Target,
        /// Posts until then, from 1.
        post: u64,
        /// When it is restarted, counted from the fault.
        back_after_ns: Option<u64>,
    },
    /// A client crashes right after its n-th write from now; another process takes its place, or nobody ever.
    ClientCrashAfterWrite {
        /// Which place.
        client: ClientId,
        /// Writes until then, from 1.
        write: u64,
        /// When the next process takes the place, counted from the crash; `None`: never.
        back_after_ns: Option<u64>,
    },
    /// Nothing gets from a client, which lives, to the members of a group; the other way is open.
    CutClient {
        /// Which place.
        client: ClientId,
        /// To whom.
        group: GroupId,
        /// How long.
        for_ns: u64,
    },
    /// Nothing gets from a client to one member; the other way is open.
    CutMember {
        /// Which place.
        client: ClientId,
        /// To whom.
        member: ProcessId,
        /// How long.
        for_ns: u64,
    },
    /// Nothing gets through between a group's leader and its other members, nor between it and the clients, either way, but for one client.
    PartLeader {
        /// Which group.
        group: GroupId,
        /// Who reaches everybody.
        except: ClientId,
        /// How long.
        for_ns: u64,
    },
    /// Nothing gets from `from` to `to`; the other way is open. `None` stands for everybody else.
    Cut {
        /// Senders.
        from: Option<Target>,
        /// Receivers.
        to: Option<Target>,
        /// How long.
        for_ns: u64,
    },
    /// Nothing gets to the process or from it.
    Isolate {
        /// Who.
        who: Target,
        /// How long.
        for_ns: u64,
    },
    /// The process and its memory are gone, however many others have lost theirs; it comes back later.
    Lose {
        /// Who: a member or a client.
        who: ProcessId,
        /// When it is restarted, counted from the crash.
        back_after_ns: u64,
    },
    /// A member that remembers does not run while the others of its group lose their memory.
    Survive {
        /// Who.
        who: ProcessId,
        /// How long.
        for_ns: u64,
    },
    /// The process does not run; its NIC goes on serving its memory.
    Stall {
        /// Who.
        who: Target,
        /// How long.
        for_ns: u64,
    },
    /// No member of a group runs; their NICs go on serving their memory.
    Silence {
        /// Which group.
        group: GroupId,
        /// How long.
        for_ns: u64,
    },
    /// The process does not run for longer than its windows and rings last; its NIC goes on serving its memory. Of each group
    /// only a minority stands still at once.
    Stop {
        /// Who.
        who: Target,
        /// How long.
        for_ns: u64,
    },
    /// The election names this process, whether the last leader is gone or not, and whether this one is there or not.
    Suspect {
        /// In which group.
        group: GroupId,
        /// The new leader.
        leader: ProcessId,
    },
    /// The election changes its mind every period, at each process as it likes.
    Flap {
        /// In which group.
        group: GroupId,
        /// How often.
        period_ns: u64,
        /// How long.
        for_ns: u64,
    },
    /// Somebody asks for another leader, for maintenance.
    HandOver {
        /// In which group.
        group: GroupId,
        /// The new leader.
        to: ProcessId,
    },
}

/// A fault and its time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Planned {
    /// When, ns of virtual time.
    pub at_ns: u64,
    /// What.
    pub fault: Fault,
}

stentor_fabric_sim::counts! {
    /// How often the nemesis did what, and what came of it.
    NemesisCounts {
        /// Leaders that crashed.
        leader_crashes,
        /// Other members that crashed.
        follower_crashes,
        /// Members that crashed between two posts of one step.
        member_crashes_at_a_post,
        /// Members that crashed while another of their group was down or had no memory yet.
        double_crashes,
        /// Members that crashed after another leader had been named and before one was ready.
        crashes_during_recovery,
        /// Members that were restarted, without memory.
        member_restarts,
        /// Members that got their group's state while clients were still sending.
        rejoins_under_load,
        /// Clients that crashed after one of their writes.
        client_crashes,
        /// Of those, clients whose place nobody took any more.
        clients_gone,
        /// Clients that were given up while they lived, and crashed when they heard of it.
        clients_superseded,
        /// Clients from which nothing got to one of the groups.
        clients_cut_off,
        /// Leaders that were cut off from their group, and from all clients but one.
        leaders_parted,
        /// Groups of which no member ran for some time.
        silent_groups,
        /// Processes of clients that began while a group was silent.
        clients_begun_beside_a_silent_group,
        /// Members to which nothing got from one client for a while.
        late_links,
        /// Bodies that a member held already, from another member, when the client's own write of them landed.
        bodies_held_already,
        /// Credits that freed ring space and no slot.
        space_credits,
        /// Messages that a client put off because a ring was full.
        ring_waits,
        /// Leaders to which nothing came: they write on, and nobody can tell them to stop.
        deaf_leaders,
        /// Leaders from which nothing got out.
        mute_leaders,
        /// Links that were cut in one direction.
        cut_links,
        /// Processes that were cut off, both ways.
        isolations,
        /// Leaders that did not run for some time.
        slow_leaders,
        /// Other processes that did not run for some time.
        stalled_followers,
        /// Leaders that did not run for longer than windows and rings last.
        leaders_stopped,
        /// Other members that did so.
        followers_stopped,
        /// Clients that did so.
        clients_stopped,
        /// Processes that were stopped so while another one was.
        several_stopped,
        /// Members that another member expelled, because they stood still.
        members_expelled,
        /// Members that a client expelled.
        members_expelled_by_clients,
        /// Leaders that were deposed although they were up.
        false_suspicions,
        /// Processes that were named although they were down or without memory.
        dead_leaders_named,
        /// Changes of mind of flapping elections.
        flaps,
        /// Leaders that were changed on request.
        hand_overs,
        /// Processes that lost their memory, however many others had lost theirs.
        memories_lost,
        /// Clients that ended because a group had begun anew.
        clients_told_of_resets,
        /// Members that did not run while others lost their memory.
        survivors_silent,
        /// Faults that were left out, because too much would have been down at once.
        beyond_the_budget,
    }
}
