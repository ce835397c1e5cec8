//! Start of a process: from a configuration to an open device with its capabilities.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
use stentor_fabric::Capabilities;
use stentor_fabric_net::NetConfig;
use stentor_switch_host::SwitchSets;

use super::config::{StartError, VerbsConfig};
use super::regions::Regions;
use super::trouble::Trouble;
use super::{CHANNEL, DEVICE, POLL_INTERVALS, POLL_TIMER, VerbsDevice, sets};
use crate::context::PortNumber;
use crate::device::{self, Choice, ChooseError, Gid, Wanted};
use crate::qp::Own;
use crate::{CompletionChannel, Context, Errno, Granted, Limits, Mtu, PortAttributes, Verbs};

/// Name of the fabric.
const NAME: &str = "verbs";

impl VerbsDevice {
    /// Opens the device that the configuration selects.
    ///
    /// # Errors
    /// See [`StartError`].
    pub(super) fn start(
        net: &NetConfig,
        config: VerbsConfig,
        epoll: Arc<OwnedFd>,
    ) -> Result<(VerbsDevice, SwitchSets<VerbsDevice>), StartError> {
        let verbs = Verbs::load()?;
        let choice = choose(net, &config)?;
        let context = Context::open(verbs, &choice.device)?;
        let port = PortNumber(choice.port);
        let place = Own { port, gid_index: gid_index(&choice)? };
        let (attributes, limits) = (context.port(port)?, context.limits()?);
        let mtu = mtu(&config, &context, &attributes)?;
        let granted = Granted::by(&context, &limits, config.inline_bytes)?;
        let (has_switch, uncopied) = copied(config.switch.is_some(), &choice.gid);
        let capabilities = capabilities((&config, has_switch), &limits, &attributes, &granted);
        let channel = CompletionChannel::new(&context)?;
        let poll_timer = watched(&epoll, &channel, &context)?;
        let sets = SwitchSets::new(config.switch.clone().filter(|_| has_switch), net)?;
        let device = VerbsDevice {
            me: net.me,
            capabilities,
            gid: choice.gid.clone(),
            choice,
            regions: Regions::default(),
            lid: attributes.lid,
            domains: net.addresses.iter().map(|_| None).collect(),
            inline_bytes: granted.inline_bytes,
            ordered_bytes: granted.ordered_bytes,
            queues: Vec::new(),
            halves: Vec::new(),
            holding: Vec::new(),
            taken: VecDeque::new(),
            failing: Vec::new(),
            broken: VecDeque::new(),
            troubles: VecDeque::from_iter(uncopied),
            unregistered: Vec::new(),
            lost: None,
            down: false,
            doubtful: false,
            config,
            context,
            place,
            mtu,
            limits,
            channel,
            epoll,
            poll_timer,
            poll_interval: POLL_INTERVALS.0,
            watched: false,
            rung: false,
            failure: None,
        };
        Ok((device, sets))
    }
}

/// Adds the descriptors that wake a sleeping process to the epoll instance. Returns the timer of the poll intervals.
fn watched(epoll: &OwnedFd, channel: &CompletionChannel, context: &Context) -> Result<OwnedFd, StartError> {
    let failed = |what| move |error: rustix::io::Errno| StartError::System { what, errno: Errno(error.raw_os_error()) };
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let poll_timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(failed("create a timer"))?;
    for (fd, what) in
        [(channel.as_fd(), CHANNEL), (context.event_descriptor(), DEVICE), (poll_timer.as_fd(), POLL_TIMER)]
    {
        let added = epoll::add(epoll, fd, epoll::EventData::new_u64(what), epoll::EventFlags::IN);
        added.map_err(failed("watch a descriptor"))?;
    }
    Ok(poll_timer)
}

fn choose(net: &NetConfig, config: &VerbsConfig) -> Result<Choice, ChooseError> {
    // If the GID is configured, this process's address need not be the one that the GID represents.
    let address = net.own_address().ok().map(|address| address.ip()).filter(|_| config.gid_index.is_none());
    let root = config.sysfs.as_path();
    let wanted = Wanted {
        device: config.device.clone(),
        port: config.port,
        gid_index: config.gid_index,
        numa_node: config.numa_node,
        ..Wanted::here(root, address)
    };
    device::choose(&device::devices(root), &wanted)
}

/// Returns whether the switch is used, and the trouble to report if a switch is configured but cannot copy packets of
/// this GID.
fn copied(has_switch: bool, gid: &Gid) -> (bool, Option<Trouble>) {
    if !has_switch || sets::is_copied(gid) {
        return (has_switch, None);
    }
    (false, Some(Trouble::NoCopies { gid: gid.to_string() }))
}

fn gid_index(choice: &Choice) -> Result<u8, ChooseError> {
    let wanted = choice.gid.index;
    u8::try_from(wanted).map_err(|_| ChooseError::NoSuchGid { wanted, present: "indices up to 255".to_owned() })
}

/// Returns the configured MTU, or the port's MTU if none is configured.
fn mtu(config: &VerbsConfig, context: &Context, port: &PortAttributes) -> Result<Mtu, StartError> {
    let most = port.mtu.unwrap_or(Mtu::B256);
    let Some(asked) = config.mtu else { return Ok(most) };
    let exact = Mtu::at_most(asked).filter(|mtu| mtu.bytes() == asked && *mtu <= most);
    exact.ok_or_else(|| StartError::Mtu { asked, device: context.name().to_owned(), most: most.bytes() })
}

fn capabilities(
    (config, has_switch): (&VerbsConfig, bool),
    limits: &Limits,
    port: &PortAttributes,
    granted: &Granted,
) -> Capabilities {
    // One completion queue must have entries for all outstanding requests of a queue pair. The queue pair of a set has
    // more slots than requested.
    let spare = if has_switch { sets::SPARE } else { 0 };
    let most = limits.queue_depth.min(limits.completions / 2).saturating_sub(spare);
    let depth = config.max_depth.min(most).max(1);
    Capabilities {
        name: NAME,
        ordered_writes: true,
        ordered_bytes: granted.ordered_bytes,
        inline_bytes: granted.inline_bytes,
        max_send_depth: depth,
        max_recv_depth: depth,
        max_message_bytes: port.message_bytes.into(),
        atomics: limits.atomics,
        unreliable: granted.unreliable,
        tagged: false,
        masks_find_early: false,
        merges_writes: true,
        loopback: true,
        many_readers: true,
        max_completions: u32::MAX,
        hardware_multicast: has_switch,
        revokes_in_hardware: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::GidKind;

    #[test]
    fn switch_that_cannot_copy_is_not_used_and_is_reported() {
        let gid = |kind| Gid { index: 3, bytes: "::ffff:10.0.0.1".parse().unwrap(), kind, interface: None };
        assert_eq!(copied(true, &gid(GidKind::RoceV2)), (true, None));
        let (has_switch, trouble) = copied(true, &gid(GidKind::RoceV1));
        assert!(!has_switch);
        let said = trouble.unwrap().to_string();
        assert!(said.contains("GID 3 RoCE v1 10.0.0.1") && said.contains("gid_index"), "{said}");
        assert_eq!(copied(false, &gid(GidKind::RoceV1)).1, None, "no switch is configured");
    }
}
