//! Processes on RDMA devices.

use stentor_fabric::ProcessId;
use stentor_fabric_net::{NetFabric, Sets};
use stentor_fabric_verbs::{VerbsConfig, VerbsDevice, VerbsFabric};

use crate::runtime::cluster::{ClusterRuntime, StartError};
use crate::runtime::fabric_diagnostics::DeviceDiagnostics;
use crate::runtime::start::{BindConfig, ClusterFabric, OnNetwork, Role};

impl ClusterFabric for VerbsFabric {
    fn start_in(
        cluster: &ClusterRuntime,
        role: Role<'_>,
        me: ProcessId,
        bind: &BindConfig,
    ) -> Result<Self, StartError> {
        let OnNetwork { net, switch, .. } = OnNetwork::new(cluster, role, me, bind)?;
        let config = VerbsConfig { switch, ..VerbsConfig::default() };
        Ok(VerbsFabric::start(net, cluster.config().verbs().apply(config))?)
    }
}

impl DeviceDiagnostics for VerbsDevice {
    const NAME: &'static str = "RDMA verbs";

    fn carrier(&self) -> Option<String> {
        let choice = self.choice();
        let (device, port) = (&choice.device, choice.port);
        Some(format!("{device} port {port}, {}, path MTU {} ({})", choice.gid, self.mtu(), choice.why))
    }

    fn next_trouble(fabric: &mut NetFabric<Self>) -> Option<String> {
        let trouble = fabric.device_mut().next_trouble();
        let trouble = trouble.map(|trouble| trouble.tell(|peer| fabric.cm().name_of(peer)));
        trouble.or_else(|| fabric.cm_mut().next_name_note()).or_else(|| fabric.cm_mut().sets.next_note())
    }
}
