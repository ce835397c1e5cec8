//! Grants and revocations of regions, on a device whose fences and failures each test controls.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use stentor_fabric::memory::{WORD, Word};
use stentor_fabric::{
    Access, AccessError, Capabilities, Completion, Event, Fabric, PostError, ProcessId, Purpose, QpConfig, QpId,
    RegionId, RegionSpec, Span, Status, WorkRequest,
};
use stentor_fabric_net::{
    Device, End, Fence, NetConfig, NetFabric, NoSets, RemoteKey, Remotes, StartError, Transport, Waiting,
};

const ME: ProcessId = ProcessId(0);

/// A device that has memory and fences, and no queue pairs.
struct Fences {
    capabilities: Capabilities,
    regions: Vec<Box<[Word]>>,
    /// `true` if grants fail.
    refuses: bool,
    /// Fences that wait.
    waiting: VecDeque<(RegionId, ProcessId)>,
    /// `true` if waiting fences hold now.
    holds: bool,
}

impl Transport for Fences {
    fn begin(&mut self, _: QpId) -> Result<End, String> {
        Err("no queue pairs".into())
    }

    fn meet(&mut self, _: QpId, _: &End, _: &End) -> Result<(), String> {
        Ok(())
    }

    fn ready(&mut self, _: QpId, _: &End, _: &End) -> Result<(), String> {
        Ok(())
    }

    fn drive(&mut self) {}

    fn fail(&mut self, _: QpId, _: Status) {}

    fn next_broken(&mut self) -> Option<QpId> {
        None
    }
}

impl Device for Fences {
    type Config = ();
    type Sets = NoSets<Self>;
    type StartError = StartError;

    fn open(_: &NetConfig, (): (), _: Arc<OwnedFd>) -> Result<(Self, NoSets<Self>), StartError> {
        let capabilities = Capabilities {
            name: "fences",
            ordered_writes: true,
            ordered_bytes: true,
            inline_bytes: 0,
            max_send_depth: 0,
            max_recv_depth: 0,
            max_message_bytes: 0,
            max_completions: 1,
            atomics: false,
            unreliable: false,
            tagged: false,
            masks_find_early: false,
            merges_writes: false,
            loopback: true,
            many_readers: false,
            hardware_multicast: false,
            revokes_in_hardware: true,
        };
        let (regions, waiting) = (Vec::new(), VecDeque::new());
        Ok((Fences { capabilities, regions, refuses: false, waiting, holds: false }, NoSets::default()))
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn make(&mut self, _: QpId, _: ProcessId, _: QpConfig) -> Result<(), String> {
        Err("no queue pairs".into())
    }

    fn is_alive(&self, _: QpId) -> bool {
        false
    }

    fn register(&mut self, _: RegionId, bytes: u64) -> Result<(), String> {
        self.regions.push((0..bytes / WORD as u64).map(|_| Word::new(0)).collect());
        Ok(())
    }

    fn memory(&self, region: RegionId) -> &[Word] {
        &self.regions[region.index()]
    }

    fn grant(&mut self, region: RegionId, _: ProcessId, _: Access) -> Result<RemoteKey, String> {
        if self.refuses { Err("no key today".into()) } else { Ok(RemoteKey { key: region.0.into(), base: 0 }) }
    }

    fn fence(&mut self, region: RegionId, peer: ProcessId) -> Result<Fence, String> {
        self.waiting.push_back((region, peer));
        Ok(Fence::Waits)
    }

    fn next_fence(&mut self) -> Option<Waiting> {
        let (region, peer) = if self.holds { self.waiting.pop_front()? } else { return None };
        Some(Waiting::Holds(region, peer))
    }

    fn has_fences(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn post(&mut self, _: &Remotes, _: QpId, _: &WorkRequest<'_>) -> Result<(), PostError> {
        Err(PostError::Unsupported("posts"))
    }

    fn post_receive(&mut self, _: QpId, _: Span, _: u64) -> Result<(), PostError> {
        Err(PostError::Unsupported("receives"))
    }

    fn poll(&mut self, _: &mut [Completion]) -> usize {
        0
    }

    fn arm(&mut self) {}

    fn has_news(&self) -> bool {
        false
    }

    fn woken(&mut self, _: &[u64], _: bool) {}
}

/// Returns a fabric with a region that is granted.
fn granted() -> (NetFabric<Fences>, RegionId) {
    let net = NetConfig::new("regions", ME, vec![Some((Ipv4Addr::LOCALHOST, 0).into())]);
    let mut fabric = NetFabric::<Fences>::start(net, ()).unwrap();
    let region = fabric.register(RegionSpec { purpose: Purpose(1), writer: ME, bytes: 64 }).unwrap();
    fabric.grant(region, ME, Access::Write).unwrap();
    (fabric, region)
}

fn events(fabric: &mut NetFabric<Fences>) -> Vec<Event> {
    std::iter::from_fn(|| fabric.next_event()).collect()
}

/// A change of access revokes the old grant without an event. If the new grant then fails, the peer has no access, but
/// the fence of the old grant still waits.
#[test]
fn revocation_after_a_failed_change_of_access_is_reported_once() {
    let (mut fabric, region) = granted();
    fabric.device_mut().refuses = true;
    let refused = fabric.grant(region, ME, Access::Read);
    assert!(matches!(refused, Err(AccessError::System { .. })), "{refused:?}");
    for _ in 0..2 {
        fabric.revoke(region, ME).unwrap();
    }
    assert_eq!(events(&mut fabric), [], "the fence does not hold yet");
    fabric.device_mut().holds = true;
    assert_eq!(events(&mut fabric), [Event::Revoked { region, peer: ME }]);
}

#[test]
fn change_of_access_is_not_reported() {
    let (mut fabric, region) = granted();
    fabric.grant(region, ME, Access::Read).unwrap();
    fabric.device_mut().holds = true;
    assert_eq!(events(&mut fabric), []);
    fabric.revoke(region, ME).unwrap();
    assert_eq!(events(&mut fabric), [Event::Revoked { region, peer: ME }]);
}
