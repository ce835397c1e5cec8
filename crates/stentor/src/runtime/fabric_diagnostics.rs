//! Diagnostics of a fabric, in addition to the fabric contract.

use stentor_fabric::{Fabric, ProcessId, Refusal};
use stentor_fabric_net::{Device, NetFabric, observe};
#[cfg(feature = "roce")]
use stentor_fabric_roce::driver::Faults;

/// A fabric between real processes.
pub trait FabricDiagnostics: Fabric {
    /// Name of the fabric in reports.
    const NAME: &'static str;

    /// Returns one line about the device or provider that carries the data, if it is chosen at start. Print it.
    fn carrier(&self) -> Option<String> {
        None
    }

    /// Returns the size of all memory that the process shares or has registered, in bytes.
    fn memory_bytes(&self) -> u64;

    /// Returns the next connection that this end or its peer refused.
    fn next_refusal(&mut self) -> Option<Refusal>;

    /// Returns whether a peer is connected.
    fn sees(&self, peer: ProcessId) -> bool;

    /// Returns whether the system has reported that a peer's process, which was connected, ended or closed its
    /// connection, and no process has connected in its place since. Silence does not count.
    fn has_died(&self, peer: ProcessId) -> bool;

    /// Returns the pid of a peer's process in this system, or `None` if it is not known.
    fn pid_of(&self, peer: ProcessId) -> Option<i32>;

    /// Returns why the last lookup of a peer's host name found no address, if it failed.
    fn unresolved(&self, _: ProcessId) -> Option<&str> {
        None
    }

    /// Returns whether peers report that another process has replaced this one.
    fn is_displaced(&self) -> bool {
        false
    }

    /// Returns the next message for the operator: a notice or a failure outside the contract. Each is returned once.
    fn next_trouble(&mut self) -> Option<String> {
        None
    }

    /// Returns the next question of an operator who has the cluster key, from any host. The number identifies the
    /// question in [`answer`](Self::answer).
    fn next_question(&mut self) -> Option<(u64, Vec<u8>)> {
        None
    }

    /// Answers a question.
    fn answer(&mut self, _: u64, _: &[u8]) {}

    /// Returns the next connection of an observer that has the cluster key, from any host.
    fn next_observer(&mut self) -> Option<observe::Line> {
        None
    }

    /// Replaces the injected network faults, if the fabric supports that. Returns `false` and does nothing if the
    /// fabric does not support this, or if the process was started without permission for it.
    #[cfg(feature = "roce")]
    fn set_faults(&mut self, _: &Faults) -> bool {
        false
    }

    /// Writes buffered data at the end. Returns the reason why a requested by-product, such as a packet capture, is
    /// incomplete.
    fn finish(&mut self) -> Option<String> {
        None
    }

    /// Finishes, and returns all remaining messages for the operator.
    fn last_troubles(&mut self) -> Vec<String> {
        let unfinished = self.finish();
        unfinished.into_iter().chain(std::iter::from_fn(|| self.next_trouble())).collect()
    }
}

/// Diagnostics of a device that reaches other hosts.
pub trait DeviceDiagnostics: Device {
    /// See [`FabricDiagnostics::NAME`].
    const NAME: &'static str;

    /// See [`FabricDiagnostics::carrier`].
    fn carrier(&self) -> Option<String> {
        None
    }

    /// Returns the next message for the operator about the device, names, addresses or the switch.
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
