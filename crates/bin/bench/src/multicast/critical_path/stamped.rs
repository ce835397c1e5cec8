//! A fabric that records when writes to other processes have left.

use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use stentor_fabric::{
    Access, AccessError, Capabilities, Completion, ConnectError, Event, Fabric, Opcode, PollHint, PostError, ProcessId,
    Purpose, QpConfig, QpId, QpState, RegionId, RegionSpec, RegisterError, RemoteRegion, RemoteSpan, Service, Span,
    WaitError, Wake, Waker, Word, WorkRequest,
};

use super::log::{Log, Mark};

/// A wrapper of a fabric that records a time for every flush of writes. All writes of a flush share one time. It is
/// taken after the flush's fence, when all of them are visible. One reading of the clock for each flush disturbs the
/// path less than one for each write.
#[derive(Debug)]
pub(super) struct Stamped<F> {
    inner: F,
    log: Rc<Log>,
    /// Peer of each queue pair.
    peers: Vec<usize>,
    /// Processes to which writes were posted since the last flush.
    touched: Vec<usize>,
}

impl<F: Fabric> Stamped<F> {
    /// Returns a wrapper that records in this log the writes that leave through the fabric.
    pub(super) fn new(inner: F, log: Rc<Log>) -> Self {
        Stamped { inner, log, peers: Vec::new(), touched: Vec::with_capacity(256) }
    }

    #[inline]
    fn touch(&mut self, qp: QpId) {
        let peer = self.peers[qp.index()];
        if peer != self.inner.me().index() && !self.touched.contains(&peer) {
            self.touched.push(peer);
        }
    }
}

/// Fan-out sets keep the contract's default methods, because shared memory has none.
impl<F: Fabric> Fabric for Stamped<F> {
    fn me(&self) -> ProcessId {
        self.inner.me()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn register(&mut self, spec: RegionSpec) -> Result<RegionId, RegisterError> {
        self.inner.register(spec)
    }

    #[inline]
    fn memory(&self, region: RegionId) -> &[Word] {
        self.inner.memory(region)
    }

    fn grant(&mut self, region: RegionId, peer: ProcessId, access: Access) -> Result<(), AccessError> {
        self.inner.grant(region, peer, access)
    }

    fn revoke(&mut self, region: RegionId, peer: ProcessId) -> Result<(), AccessError> {
        self.inner.revoke(region, peer)
    }

    fn connect(&mut self, peer: ProcessId, service: Service, config: QpConfig) -> Result<QpId, ConnectError> {
        let qp = self.inner.connect(peer, service, config)?;
        if self.peers.len() <= qp.index() {
            self.peers.resize(qp.index() + 1, self.inner.me().index());
        }
        self.peers[qp.index()] = peer.index();
        Ok(qp)
    }

    fn state(&self, qp: QpId) -> QpState {
        self.inner.state(qp)
    }

    fn disconnect(&mut self, qp: QpId) -> Result<(), ConnectError> {
        self.inner.disconnect(qp)
    }

    fn reset(&mut self, qp: QpId) -> Result<(), ConnectError> {
        self.inner.reset(qp)
    }

    fn resolve(&mut self, peer: ProcessId, purpose: Purpose) -> Option<RemoteRegion> {
        self.inner.resolve(peer, purpose)
    }

    /// Posts a request. A READ causes no reaction at the peer, so it is not recorded.
    #[inline]
    fn post(&mut self, qp: QpId, request: WorkRequest<'_>) -> Result<(), PostError> {
        let is_read = request.verb.opcode() == Opcode::Read;
        self.inner.post(qp, request)?;
        if !is_read {
            self.touch(qp);
        }
        Ok(())
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
        self.inner.write_inline(qp, id, data, target, signalled)?;
        self.touch(qp);
        Ok(())
    }

    #[inline]
    fn post_recv(&mut self, qp: QpId, local: Span, id: u64) -> Result<(), PostError> {
        self.inner.post_recv(qp, local, id)
    }

    fn post_tagged_recv(&mut self, qp: QpId, local: Span, tag: u64, ignore: u64, id: u64) -> Result<(), PostError> {
        self.inner.post_tagged_recv(qp, local, tag, ignore, id)
    }

    #[inline]
    fn flush(&mut self) {
        self.inner.flush();
        if !self.touched.is_empty() {
            self.log.mark(self.touched.drain(..).map(Mark::Wrote));
        }
    }

    #[inline]
    fn poll_hint(&mut self) -> PollHint {
        self.inner.poll_hint()
    }

    #[inline]
    fn poll(&mut self, out: &mut [Completion]) -> usize {
        self.inner.poll(out)
    }

    fn next_event(&mut self) -> Option<Event> {
        self.inner.next_event()
    }

    fn arm(&mut self) {
        self.inner.arm();
    }

    fn wait(&mut self, timeout: Duration) -> Result<Wake, WaitError> {
        self.inner.wait(timeout)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }
}
