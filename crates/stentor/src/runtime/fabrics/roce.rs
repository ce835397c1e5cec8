//! Processes on RoCEv2 in user space.

use stentor_fabric::ProcessId;
use stentor_fabric_net::{NetFabric, Sets};
use stentor_fabric_roce::driver::Faults;
use stentor_fabric_roce::{RoceConfig, RoceDevice, RoceFabric};

use crate::runtime::cluster::{ClusterRuntime, StartError};
use crate::runtime::fabric_diagnostics::DeviceDiagnostics;
use crate::runtime::start::{BindConfig, ClusterFabric, OnNetwork, Role};

impl ClusterFabric for RoceFabric {
    fn start_in(
        cluster: &ClusterRuntime,
        role: Role<'_>,
        me: ProcessId,
        bind: &BindConfig,
    ) -> Result<Self, StartError> {
        let OnNetwork { net, switch, message_bytes } = OnNetwork::new(cluster, role, me, bind)?;
        let config = RoceConfig {
            switch,
            message_bytes,
            pcap: bind.pcap.clone(),
            chances: bind.chances,
            seed: bind.seed.wrapping_add(u64::from(me.0)),
            faults: bind.faults,
            sharing: bind.sharing.clone(),
            ..RoceConfig::default()
        };
        Ok(RoceFabric::start(net, config)?)
    }
}

impl DeviceDiagnostics for RoceDevice {
    const NAME: &'static str = "RoCEv2 in user space";

    fn next_trouble(fabric: &mut NetFabric<Self>) -> Option<String> {
        let note = fabric.device_mut().next_capture_error().or_else(|| fabric.cm_mut().next_name_note());
        note.or_else(|| fabric.device_mut().next_note()).or_else(|| fabric.cm_mut().sets.next_note())
    }

    fn finish(&mut self) -> Option<String> {
        self.finish_capture().err()
    }

    fn set_faults(&mut self, faults: &Faults) -> bool {
        self.set_faults(faults)
    }
}
