//! Regions and queue pairs of one process, without the protocol. A Byzantine process has them, too.

use stentor_fabric::memory::{Ordering, WORD, Word};
use stentor_fabric::{Access, Fabric, ProcessId, Purpose, RegionId, RegionSpec};
use stentor_link::purpose::{NEB_BROADCAST, NEB_CONTROL, NEB_STAGING, neb_registers, neb_scratch};

use super::NodeError;
use super::peer::Peers;
use crate::{Config, Layout, Mode, ProcessSet};

/// The regions and queue pairs of one process.
#[derive(Debug)]
pub struct Endpoint<F: Fabric> {
    pub(crate) fabric: F,
    pub(crate) config: Config,
    pub(crate) layout: Layout,
    pub(crate) salt: u64,
    pub(crate) me: ProcessId,
    /// All other processes.
    pub(crate) others: ProcessSet,
    /// Length of the longest inline write, in bytes.
    pub(crate) inline_bytes: u32,
    /// Links to the peers. In mode `all` there is none to the process itself.
    pub(crate) peers: Peers,
    regions: Regions,
    pub(crate) staging: RegionId,
    /// Region for READs from each host.
    pub(crate) scratch: Vec<Option<RegionId>>,
    /// Number of registered bytes.
    pub(crate) registered: u64,
}

/// Regions that peers access here.
#[derive(Debug, Default)]
struct Regions {
    /// Broadcast region of each sender.
    broadcasts: Vec<Option<RegionId>>,
    /// Registers of each writer that are kept here.
    registers: Vec<Option<RegionId>>,
    /// Control region of each peer.
    controls: Vec<Option<RegionId>>,
    bytes: u64,
}

impl<F: Fabric> Endpoint<F> {
    /// Registers the regions and begins to connect. `salt` is the cluster's.
    ///
    /// # Errors
    /// See [`NodeError`].
    pub fn new(mut fabric: F, config: Config, salt: u64) -> Result<Self, NodeError> {
        config.check()?;
        let me = fabric.me();
        if me.index() >= config.processes {
            return Err(NodeError::Role(me, config.processes));
        }
        let layout = Layout::new(&config);
        check_fabric(&fabric, &config, &layout)?;
        let regions = open_regions(&mut fabric, &config, &layout)?;
        let mut registered = regions.bytes;
        let mut private = |purpose: Purpose, bytes| {
            registered += bytes;
            fabric.register(RegionSpec { purpose, writer: me, bytes })
        };
        let staging = private(NEB_STAGING, layout.own_bytes())?;
        let linked = |peer: ProcessId| peer != me || config.mode != Mode::All;
        let mut scratch = Vec::new();
        for host in config.everybody().iter() {
            let region = linked(host).then(|| private(neb_scratch(host), layout.scratch_bytes()));
            scratch.push(region.transpose()?);
        }
        let peers = Peers::open(&mut fabric, config.everybody().iter(), linked)?;
        let (others, inline_bytes) = (config.everybody().without(me), fabric.capabilities().inline_bytes);
        Ok(Endpoint {
            fabric,
            config,
            layout,
            salt,
            me,
            others,
            inline_bytes,
            peers,
            regions,
            staging,
            scratch,
            registered,
        })
    }

    /// Returns the words of the buffer that a sender writes here.
    #[inline]
    pub(crate) fn broadcast_words(&self, sender: ProcessId) -> &[Word] {
        self.words(self.regions.broadcasts[sender.index()])
    }

    /// Returns the words of a writer's registers that are kept here.
    #[inline]
    pub(crate) fn register_words(&self, writer: ProcessId) -> &[Word] {
        self.words(self.regions.registers[writer.index()])
    }

    /// Returns the words to which a peer writes credits.
    #[inline]
    pub(crate) fn control_words(&self, peer: ProcessId) -> &[Word] {
        self.words(self.regions.controls[peer.index()])
    }

    /// Returns the regions that a process can access here, in mode `all`: it writes two and reads one.
    pub(crate) fn reached_by(&self, peer: ProcessId) -> impl Iterator<Item = RegionId> {
        let Regions { broadcasts, registers, controls, .. } = &self.regions;
        [broadcasts[peer.index()], controls[peer.index()], registers[self.me.index()]].into_iter().flatten()
    }

    #[inline]
    fn words(&self, region: Option<RegionId>) -> &[Word] {
        region.map_or(&[], |region| self.fabric.memory(region))
    }
}

/// Stores words into local memory.
pub(crate) fn store(words: &[Word], offset: u64, values: &[u64]) {
    for (to, from) in words[offset as usize / WORD..].iter().zip(values) {
        to.store(*from, Ordering::Release);
    }
}

fn open_regions<F: Fabric>(fabric: &mut F, config: &Config, layout: &Layout) -> Result<Regions, NodeError> {
    let me = fabric.me();
    let mut regions = Regions::default();
    let mut registered = 0;
    let mut region = |purpose, writer, bytes, readers: bool| -> Result<Option<RegionId>, NodeError> {
        let region = fabric.register(RegionSpec { purpose, writer, bytes })?;
        registered += bytes;
        // In mode `all` a process's registers are stored by its own processor, so no peer gets write access.
        if writer != me || config.mode != Mode::All {
            fabric.grant(region, writer, Access::Write)?;
        }
        for reader in config.everybody().without(writer).iter().filter(|_| readers) {
            fabric.grant(region, reader, Access::Read)?;
        }
        Ok(Some(region))
    };
    for peer in config.everybody().iter() {
        let other = peer != me;
        regions.broadcasts.push(if other {
            region(NEB_BROADCAST, peer, layout.broadcast_bytes(), false)?
        } else {
            None
        });
        regions.controls.push(if other { region(NEB_CONTROL, peer, layout.control_bytes(), false)? } else { None });
        let kept = config.mode != Mode::All || !other;
        let purpose = neb_registers(peer);
        regions.registers.push(if kept { region(purpose, peer, layout.register_bytes(), true)? } else { None });
    }
    regions.bytes = registered;
    Ok(regions)
}

/// Checks that the fabric has the capabilities and the limits that this configuration needs.
fn check_fabric<F: Fabric>(fabric: &F, config: &Config, layout: &Layout) -> Result<(), NodeError> {
    let has = fabric.capabilities();
    if !has.many_readers {
        return Err(NodeError::Lacks(has.name, "regions with many readers"));
    }
    if config.mode != Mode::All && !has.loopback {
        return Err(NodeError::Lacks(has.name, "connections to oneself (mode `all` needs none)"));
    }
    if u64::from(has.inline_bytes) < layout.control_bytes() {
        return Err(NodeError::Lacks(has.name, "inline writes of 64 bytes"));
    }
    let needs = layout.broadcast_bytes();
    if needs > has.max_message_bytes {
        return Err(NodeError::Fabric { needs, has: has.max_message_bytes });
    }
    Ok(())
}
