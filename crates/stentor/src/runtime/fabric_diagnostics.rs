//! What a process says of its fabric besides the contract.

use stentor_fabric::{Fabric, ProcessId, Refusal};
use stentor_fabric_net::{Device, NetFabric, observe};
#[cfg(feature = "roce")]
use stentor_fabric_roce::driver::Faults;

/// A fabric between processes of a system.
pub trait FabricDiagnostics: Fabric {
    /// As in a report.
    const NAME: &'static str;

    /// What data really goes over, in one line, where that is chosen when a process starts: print it.
    fn carrier(&self) -> Option<String> {
        None
    }

    /// All memory that it shares or registered, bytes.
    fn memory_bytes(&self) -> u64;

    /// The next connection that was refused, here or by the other end.
    fn next_refusal(&mut self) -> Option<Refusal>;

    /// Whether a peer is there.
    fn sees(&self, peer: ProcessId) -> bool;

    /// Whether the system has told that the process of a peer has died: one that was there, and in whose place no other has come since.
    /// Silence is no death.
    fn has_died(&self, peer: ProcessId) -> bool;

    /// As which process of this system a peer is there, where that can be known.
    fn pid_of(&self, peer: ProcessId) -> Option<i32>;

    /// Why the host name of a peer led to no address when it was looked up last, if it did not.
    fn unresolved(&self, _: ProcessId) -> Option<&str> {
        None
    }

    /// Whether peers say that another process is in this one's place.
    fn is_displaced(&self) -> bool {
        false
    }

    /// What a person should know beside the contract, and what went wrong there: each told once.
    fn next_trouble(&mut self) -> Option<String> {
        None
    }

    /// The next question of somebody on any host who has the cluster's key and is no process, with a number for its
    /// [`answer`](Self::answer).
    fn next_question(&mut self) -> Option<(u64, Vec<u8>)> {
        None
    }

    /// Answers it.
    fn answer(&mut self, _: u64, _: &[u8]) {}

    /// Returns the next line of somebody on any host who has the cluster's key and observes the group.
    fn next_observer(&mut self) -> Option<observe::Line> {
        None
    }

    /// Replaces the network's faults, on a fabric that can inject them. Returns false, and does nothing, where that is
    /// impossible or was not allowed when the process was started.
    #[cfg(feature = "roce")]
    fn set_faults(&mut self, _: &Faults) -> bool {
        false
    }

    /// Writes out what is held back, at the end. Why what was asked for beside the messages is not whole, if it is not.
    fn finish(&mut self) -> Option<String> {
        None
    }

    /// Everything that is still to be told when it is over.
    fn last_troubles(&mut self) -> Vec<String> {
        let unfinished = self.finish();
        unfinished.into_iter().chain(std::iter::from_fn(|| self.next_trouble())).collect()
    }
}

/// What people are told of a device that reaches other hosts.
pub trait DeviceDiagnostics: Device {
    /// See [`FabricDiagnostics::NAME`].
    const NAME: &'static str;

    /// See [`FabricDiagnostics::carrier`].
    fn carrier(&self) -> Option<String> {
        None
    }

    /// Returns the next thing of the device, names, addresses or the switch that a person should know.
    fn next_trouble(fabric: &mut NetFabric<Self>) -> Option<String>;

    /// See [`FabricDiagnostics::finish`].
    fn finish(&mut self) -> Option<String> {
        None
    }

    /// See [`FabricDiagnostics::set_faults`].
    #[cfg(feature = "roce")]
    fn set_faults(&mut self, _: &Faults) -> bool {
        false
    }
}

impl<D: DeviceDiagnostics> FabricDiagnostics for NetFabric<D> {
    const NAME: &'static str = D::NAME;

    fn carrier(&self) -> Option<String> {
        self.device().carrier()
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes()
    }

    fn next_refusal(&mut self) -> Option<Refusal> {
        self.next_refusal()
    }

    fn next_question(&mut self) -> Option<(u64, Vec<u8>)> {
        self.cm_mut().next_question()
    }

    fn answer(&mut self, question: u64, answer: &[u8]) {
        self.cm_mut().answer(question, answer);
    }

    fn next_observer(&mut self) -> Option<observe::Line> {
        self.next_observer()
    }

    fn sees(&self, peer: ProcessId) -> bool {
        self.is_linked(peer)
    }

    #[inline]
    fn has_died(&self, peer: ProcessId) -> bool {
        self.cm().has_died(peer)
    }

    fn pid_of(&self, _: ProcessId) -> Option<i32> {
        None
    }

    fn unresolved(&self, peer: ProcessId) -> Option<&str> {
        self.cm().unresolved(peer)
    }

    fn is_displaced(&self) -> bool {
        self.cm().is_displaced()
    }

    fn next_trouble(&mut self) -> Option<String> {
        D::next_trouble(self)
    }

    fn finish(&mut self) -> Option<String> {
        self.device_mut().finish()
    }

    #[cfg(feature = "roce")]
    fn set_faults(&mut self, faults: &Faults) -> bool {
        DeviceDiagnostics::set_faults(self.device_mut(), faults)
    }
}
