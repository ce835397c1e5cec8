//! RDMA on this machine: the library, the kernel's modules, and devices with their ports and GIDs.

use std::path::Path;

use stentor_fabric_verbs::device::{self, Choice, Device, Port};
use stentor_fabric_verbs::{Context, Granted, PortNumber, Verbs, VerbsConfig};
use stentor_support::{bytes, rdma_choice};

use super::Finding;

/// Beginning of the remedies of this file, because the other fabrics need no RDMA device.
const OTHERS: &str = "nothing to do on shm, roce and sim; for RDMA devices";

/// Modules for access by processes, then drivers in software over Ethernet, then drivers of cards.
const MODULES: [&str; 11] = [
    "ib_uverbs",
    "rdma_rxe",
    "siw",
    "mlx5_ib",
    "mlx4_ib",
    "bnxt_re",
    "irdma",
    "efa",
    "qedr",
    "hns_roce_hw_v2",
    "erdma",
];

/// Returns findings about the library, the modules, and each device followed by its ports.
pub(super) fn findings() -> Vec<Finding> {
    let root = Path::new(device::ROOT);
    let devices = device::devices(root);
    let mut findings = vec![library(), modules(root)];
    if devices.is_empty() {
        let remedy = format!("{OTHERS} load the card's driver, or: rdma link add rxe0 type rxe netdev INTERFACE");
        findings.push(Finding::info("RDMA devices", "none", remedy));
    }
    for device in &devices {
        let context = Verbs::load().ok().map(|verbs| Context::open(verbs, &device.name));
        findings.push(device_finding(device, context.as_ref()));
        let context = context.and_then(Result::ok);
        findings.extend(device.ports.iter().map(|port| port_finding(device, port, context.as_deref())));
    }
    findings
}

/// Returns whether the fabric `verbs` works here. The text has the device that it would choose, with the reason, or
/// says what is missing.
pub(crate) fn would_take() -> (bool, String) {
    let tried = rdma_choice().and_then(|choice| {
        let granted = granted(&choice.device)?;
        Ok((choice, granted))
    });
    match tried {
        Ok((Choice { device, port, gid, why }, granted)) => {
            (true, format!("it would use {device} port {port}, {gid} ({why}); {}", grants(granted)))
        }
        Err(error) => (false, error),
    }
}

/// Creates queue pairs and registers memory, because a process may see a device without being allowed to use it.
fn granted(device: &str) -> Result<Granted, String> {
    let verbs = Verbs::load().map_err(|error| error.to_string())?;
    let context = Context::open(verbs, device).map_err(|error| error.to_string())?;
    let limits = context.limits().map_err(|error| error.to_string())?;
    let inline_bytes = VerbsConfig::default().inline_bytes;
    Granted::by(&context, &limits, inline_bytes).map_err(|error| error.to_string())
}

fn grants(Granted { inline_bytes, ordered_bytes, unreliable }: Granted) -> String {
    let order = if ordered_bytes { "in rising order" } else { "in any order" };
    let kinds = if unreliable { "RC and UC" } else { "RC only" };
    format!("{kinds}, {inline_bytes} bytes inline, the bytes of a WRITE land {order}")
}

fn library() -> Finding {
    let what = "libibverbs";
    match Verbs::load() {
        Ok(verbs) => {
            let path = verbs.path().map_or(String::new(), |path| format!(" ({})", path.display()));
            Finding::ok(what, format!("version {}{path}", verbs.version().unwrap_or("unknown")))
        }
        Err(error) => Finding::info(what, error.to_string(), format!("{OTHERS} install rdma-core")),
    }
}

/// Checks the kernel's modules. A module that is compiled into the kernel may have no directory of its own, but the
/// directory of its device class exists.
fn modules(root: &Path) -> Finding {
    let what = "RDMA modules";
    let is_loaded = |name: &&str| root.join("module").join(name).is_dir();
    let loaded: Vec<_> = MODULES.into_iter().filter(is_loaded).collect();
    match (loaded.is_empty(), root.join("class/infiniband_verbs").is_dir()) {
        (false, true) => Finding::ok(what, loaded.join(", ")),
        (true, true) => Finding::ok(what, "ib_uverbs, in the kernel itself"),
        (_, false) => {
            let detail =
                if loaded.is_empty() { "none".to_owned() } else { format!("{} without ib_uverbs", loaded.join(", ")) };
            Finding::info(what, detail, format!("{OTHERS} modprobe ib_uverbs, and rdma_rxe or the card's driver"))
        }
    }
}

fn device_finding(
    device: &Device,
    context: Option<&Result<std::sync::Arc<Context>, stentor_fabric_verbs::OpenError>>,
) -> Finding {
    let what = "RDMA device";
    let file = device.file.as_ref().map_or("no file".to_owned(), |file| file.display().to_string());
    let node = device.numa_node.map_or(String::new(), |node| format!(", NUMA node {node}"));
    let detail = format!("{}: {file}{node}", device.name);
    let limits = match context {
        None => return Finding::info(what, detail, format!("{OTHERS} install rdma-core to see more")),
        Some(Ok(context)) => context.limits().map_err(|error| error.to_string()),
        Some(Err(error)) => Err(error.to_string()),
    };
    match limits {
        Ok(most) => {
            let atomics = if most.atomics { "atomics" } else { "no atomics" };
            let most = format!(
                "at most {} queue pairs of {} requests, {} completion queues of {}, {} regions of {}, {} READs at a time, {atomics}",
                most.queue_pairs,
                most.queue_depth,
                most.completion_queues,
                most.completions,
                most.regions,
                bytes(most.region_bytes),
                most.reads_asked,
            );
            Finding::ok(what, format!("{detail}; {most}"))
        }
        Err(error) => Finding::info(what, format!("{detail}; {error}"), format!("{OTHERS} see the error")),
    }
}

fn port_finding(device: &Device, port: &Port, context: Option<&Context>) -> Finding {
    let what = "RDMA port";
    let mtu = context.and_then(|context| context.port(PortNumber(port.number)).ok()?.mtu);
    let mtu = mtu.map_or(String::new(), |mtu| format!(", MTU {}", mtu.bytes()));
    let gids: Vec<_> = port.gids.iter().map(ToString::to_string).collect();
    let gids = if gids.is_empty() { "no GID".to_owned() } else { gids.join("; ") };
    let Port { number, link, state, rate, .. } = port;
    let detail = format!("{} port {number}: {state}, {link}, {rate}{mtu}; {gids}", device.name);
    if !port.is_active() {
        let remedy = format!("{OTHERS} connect the cable and set the network interface up, or start a subnet manager");
        return Finding::info(what, detail, remedy);
    }
    if port.gids.is_empty() {
        return Finding::info(what, detail, format!("{OTHERS} give the network interface an address"));
    }
    Finding::ok(what, detail)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use stentor_fabric_verbs::device::{Gid, GidKind, LinkLayer};

    use super::super::State;
    use super::*;

    fn rxe(state: &str, gids: Vec<Gid>) -> Device {
        let port = Port { number: 1, link: LinkLayer::Ethernet, state: state.into(), rate: "10 Gb/sec".into(), gids };
        let file = Some(PathBuf::from("/dev/infiniband/uverbs0"));
        Device { name: "rxe0".into(), file, numa_node: Some(0), firmware: String::new(), ports: vec![port] }
    }

    #[test]
    fn device_capabilities_are_reported() {
        let granted = Granted { inline_bytes: 384, ordered_bytes: false, unreliable: true };
        assert_eq!(grants(granted), "RC and UC, 384 bytes inline, the bytes of a WRITE land in any order");
        let granted = Granted { ordered_bytes: true, unreliable: false, ..granted };
        assert_eq!(grants(granted), "RC only, 384 bytes inline, the bytes of a WRITE land in rising order");
    }

    #[test]
    fn port_is_reported_with_its_gids_and_their_types() {
        let gid = Gid {
            index: 1,
            bytes: "::ffff:10.0.0.1".parse().unwrap(),
            kind: GidKind::RoceV2,
            interface: Some("eth0".into()),
        };
        let device = rxe("ACTIVE", vec![gid]);
        let finding = port_finding(&device, &device.ports[0], None);
        assert_eq!(finding.state, State::Ok);
        assert_eq!(finding.detail, "rxe0 port 1: ACTIVE, Ethernet, 10 Gb/sec; GID 1 RoCE v2 10.0.0.1 on eth0");
    }

    #[test]
    fn unusable_port_has_a_remedy() {
        for (state, word) in [("DOWN", "cable"), ("ACTIVE", "address")] {
            let device = rxe(state, vec![]);
            let finding = port_finding(&device, &device.ports[0], None);
            assert_eq!(finding.state, State::Info);
            assert!(finding.remedy.unwrap().contains(word));
        }
    }

    #[test]
    fn machine_without_rdma_names_the_modules_to_load() {
        let finding = modules(Path::new("/nonexistent"));
        assert_eq!((finding.state, finding.detail.as_str()), (State::Info, "none"));
        assert!(finding.remedy.unwrap().contains("modprobe ib_uverbs"));
    }
}
