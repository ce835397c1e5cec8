//! A fabric that may be wrapped, chosen when a process starts.

use std::time::Duration;

use super::{Disorder, Disorders};
use crate::{
    Access, AccessError, Capabilities, Completion, ConnectError, Event, Fabric, Heard, PostError, ProcessId, Purpose,
    QpConfig, QpId, QpState, RegionId, RegionSpec, RegisterError, RemoteRegion, RemoteSpan, Service, SetSpec, SetWrite,
    Span, WaitError, Wake, Word, WorkRequest,
};

/// A fabric as it is, or behind a [`Disorder`]. A branch at every call is what it costs as it is.
pub enum Restricted<F> {
    /// As it is.
    Plain(F),
    /// Behind the wrapper.
    Under(Box<Disorder<F>>),
}

/// The same call on either.
macro_rules! either {
    ($self:ident, $fabric:ident => $call:expr) => {
        match $self {
            Restricted::Plain($fabric) => $call,
            Restricted::Under($fabric) => $call,
        }
    };
}

impl<F: Fabric> Restricted<F> {
    /// Wraps a fabric if there are disorders.
    pub fn new(fabric: F, disorders: Option<Disorders>) -> Self {
        match disorders {
            None => Restricted::Plain(fabric),
            Some(disorders) => Restricted::Under(Box::new(Disorder::new(fabric, disorders))),
        }
    }

    /// The fabric itself.
    pub fn inner(&self) -> &F {
        match self {
            Restricted::Plain(fabric) => fabric,
            Restricted::Under(fabric) => fabric.inner(),
        }
    }

    /// The fabric itself, to ask for what the contract does not have.
    pub fn inner_mut(&mut self) -> &mut F {
        match self {
            Restricted::Plain(fabric) => fabric,
            Restricted::Under(fabric) => fabric.inner_mut(),
        }
    }

    /// What is imposed on it.
    pub fn disorders(&self) -> Option<Disorders> {
        match self {
            Restricted::Plain(_) => None,
            Restricted::Under(fabric) => Some(fabric.disorders()),
        }
    }
}

impl<F: Fabric> Fabric for Restricted<F> {
    #[inline]
    fn me(&self) -> ProcessId {
        either!(self, fabric => fabric.me())
    }

    #[inline]
    fn capabilities(&self) -> &Capabilities {
        either!(self, fabric => fabric.capabilities())
    }

    fn register(&mut self, spec: RegionSpec) -> Result<RegionId, RegisterError> {
        either!(self, fabric => fabric.register(spec))
    }

    #[inline]
    fn memory(&self, region: RegionId) -> &[Word] {
        either!(self, fabric => fabric.memory(region))
    }

    fn grant(&mut self, region: RegionId, peer: ProcessId, access: Access) -> Result<(), AccessError> {
        either!(self, fabric => fabric.grant(region, peer, access))
    }

    fn revoke(&mut self, region: RegionId, peer: ProcessId) -> Result<(), AccessError> {
        either!(self, fabric => fabric.revoke(region, peer))
    }

    fn connect(&mut self, peer: ProcessId, service: Service, config: QpConfig) -> Result<QpId, ConnectError> {
        either!(self, fabric => fabric.connect(peer, service, config))
    }

    fn state(&self, qp: QpId) -> QpState {
        either!(self, fabric => fabric.state(qp))
    }

    fn reset(&mut self, qp: QpId) -> Result<(), ConnectError> {
        either!(self, fabric => fabric.reset(qp))
    }

    fn resolve(&mut self, peer: ProcessId, purpose: Purpose) -> Option<RemoteRegion> {
        either!(self, fabric => fabric.resolve(peer, purpose))
    }

    #[inline]
    fn post(&mut self, qp: QpId, request: WorkRequest<'_>) -> Result<(), PostError> {
        either!(self, fabric => fabric.post(qp, request))
    }

    #[inline]
    fn write_inline(
        &mut self,
        qp: QpId,
        id: u64,
        data: &[u8],
        target: RemoteSpan,
        signalled: bool,
    ) -> Result<(), PostError> {
        either!(self, fabric => fabric.write_inline(qp, id, data, target, signalled))
    }

    #[inline]
    fn post_recv(&mut self, qp: QpId, local: Span, id: u64) -> Result<(), PostError> {
        either!(self, fabric => fabric.post_recv(qp, local, id))
    }

    #[inline]
    fn post_tagged_recv(&mut self, qp: QpId, local: Span, tag: u64, ignore: u64, id: u64) -> Result<(), PostError> {
        either!(self, fabric => fabric.post_tagged_recv(qp, local, tag, ignore, id))
    }

    fn cancel_tagged_recv(&mut self, qp: QpId, id: u64) -> Result<(), PostError> {
        either!(self, fabric => fabric.cancel_tagged_recv(qp, id))
    }

    fn join_set(&mut self, spec: SetSpec<'_>, config: QpConfig) -> Result<QpId, ConnectError> {
        either!(self, fabric => fabric.join_set(spec, config))
    }

    #[inline]
    fn set_reaches(&self, set: QpId, peer: ProcessId) -> bool {
        either!(self, fabric => fabric.set_reaches(set, peer))
    }

    #[inline]
    fn set_settled(&self, set: QpId, peer: ProcessId) -> bool {
        either!(self, fabric => fabric.set_settled(set, peer))
    }

    #[inline]
    fn post_set(&mut self, set: QpId, write: SetWrite<'_>) -> Result<(), PostError> {
        either!(self, fabric => fabric.post_set(set, write))
    }

    #[inline]
    fn flush(&mut self) {
        either!(self, fabric => fabric.flush());
    }

    #[inline]
    fn listen(&mut self) -> Heard {
        either!(self, fabric => fabric.listen())
    }

    #[inline]
    fn poll(&mut self, out: &mut [Completion]) -> usize {
        either!(self, fabric => fabric.poll(out))
    }

    fn next_event(&mut self) -> Option<Event> {
        either!(self, fabric => fabric.next_event())
    }

    fn arm(&mut self) {
        either!(self, fabric => fabric.arm());
    }

    fn wait(&mut self, timeout: Duration) -> Result<Wake, WaitError> {
        either!(self, fabric => fabric.wait(timeout))
    }

    fn raw_fd(&self) -> Option<i32> {
        either!(self, fabric => fabric.raw_fd())
    }
}
