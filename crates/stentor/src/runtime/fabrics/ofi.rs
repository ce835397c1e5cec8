//! Processes on libfabric.

use stentor_fabric::{CapabilityMask, ProcessId};
use stentor_fabric_net::NetFabric;
use stentor_fabric_ofi::{OfiConfig, OfiDevice, OfiFabric};

use crate::runtime::cluster::{ClusterRuntime, StartError};
use crate::runtime::fabric_diagnostics::DeviceDiagnostics;
use crate::runtime::start::{BindConfig, ClusterFabric, OnNetwork, Role};

impl ClusterFabric for OfiFabric {
    fn start_in(
        cluster: &ClusterRuntime,
        role: Role<'_>,
        me: ProcessId,
        bind: &BindConfig,
    ) -> Result<Self, StartError> {
        let OnNetwork { net, message_bytes, .. } = OnNetwork::new(cluster, role, me, bind)?;
        let config = OfiConfig { message_bytes, ..OfiConfig::default() };
        Ok(OfiFabric::start(net, cluster.config().ofi().apply(&config))?)
    }
}

impl DeviceDiagnostics for OfiDevice {
    const NAME: &'static str = "libfabric";

    fn carrier(&self) -> Option<String> {
        let carrier = format!("libfabric's provider {}", self.provider());
        if self.mask() == CapabilityMask::default() {
            return Some(carrier);
        }
        let tags = if self.mask().tagged { ", no tags" } else { "" };
        Some(format!("{carrier}, restricted as EFA{tags} (not EFA itself)"))
    }

    fn next_trouble(fabric: &mut NetFabric<Self>) -> Option<String> {
        fabric.cm_mut().next_name_note().or_else(|| fabric.device_mut().next_trouble())
    }
}
