//! A testbed and a workload that the tests share.
#![allow(dead_code, reason = "each test uses a part of this")]

pub(crate) mod chatter;

use stentor_fabric::{Fabric, ProcessId};
use stentor_fabric_conformance::Testbed;
use stentor_fabric_sim::{NetworkModel, SimConfig, SimFabric, World};

/// All processes of one world. Each `advance` takes 300 ns.
pub(crate) struct SimBed<F = SimFabric> {
    pub(crate) world: World,
    pub(crate) repeats: u64,
    pub(crate) patience: usize,
    pub(crate) fabrics: Vec<F>,
    /// Wraps the fabric of a process.
    pub(crate) wrap: Box<dyn Fn(SimFabric) -> F>,
}

pub(crate) fn bed(processes: usize, seed: u64, network: &NetworkModel) -> SimBed {
    wrapped(processes, seed, network, |fabric| fabric)
}

/// Creates a bed whose fabrics are wrapped.
pub(crate) fn wrapped<F>(
    processes: usize,
    seed: u64,
    network: &NetworkModel,
    wrap: impl Fn(SimFabric) -> F + 'static,
) -> SimBed<F> {
    let world = World::new(SimConfig::new(processes, seed, network.clone()));
    let fabrics = (0..processes as u16).map(|p| wrap(world.fabric(ProcessId(p)))).collect();
    SimBed { world, repeats: 8, patience: 40_000, fabrics, wrap: Box::new(wrap) }
}

impl<F: Fabric> Testbed for SimBed<F> {
    type F = F;

    fn processes(&self) -> usize {
        self.fabrics.len()
    }

    fn fabric(&mut self, process: ProcessId) -> &mut F {
        &mut self.fabrics[process.index()]
    }

    fn advance(&mut self) {
        self.world.advance(300);
    }

    fn crash(&mut self, process: ProcessId) {
        self.world.crash(process);
    }

    fn restart(&mut self, process: ProcessId) {
        self.fabrics[process.index()] = (self.wrap)(self.world.restart(process));
    }

    fn repeats(&self) -> u64 {
        self.repeats
    }

    fn patience(&self) -> usize {
        self.patience
    }

    fn cut(&mut self, from: ProcessId, to: ProcessId) -> bool {
        self.world.cut_one_way(from, to);
        true
    }

    fn heal(&mut self, from: ProcessId, to: ProcessId) {
        self.world.heal_one_way(from, to);
    }
}
