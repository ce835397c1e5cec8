//! From a configuration to a device that is ready.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
use stentor_fabric::Capabilities;

use super::config::{StartError, VerbsConfig};
use super::regions::Regions;
use super::trouble::Trouble;
use super::{CHANNEL, DEVICE, NAP, NAPS, VerbsDevice, sets};
use crate::context::PortNumber;
use crate::device::{self, Choice, ChooseError, Gid, Wanted};
use crate::qp::Own;
use crate::{CompletionChannel, Context, Errno, Granted, Limits, Mtu, PortAttributes, Verbs};

/// What it is called.
const NAME: &str = "verbs";

impl VerbsDevice {
    /// Opens the device that the configuration chooses.
    ///
    /// # Errors
    /// See [`StartError`].
    pub(super) fn start(
        config: VerbsConfig,
        epoll: Arc<OwnedFd>,
    ) -> Result<(VerbsDevice, stentor_fabric_net::Config), StartError> {
        let verbs = Verbs::load()?;
        let choice = choose(&config)?;
        let context = Context::open(verbs, &choice.device)?;
        let port = PortNumber(choice.port);
        let place = Own { port, gid_index: gid_index(&choice)? };
        let (attributes, limits) = (context.port(port)?, context.limits()?);
        let mtu = mtu(&config, &context, &attributes)?;
        let granted = Granted::by(&context, &limits, config.inline_bytes)?;
        let (config, uncopied) = copied(config, &choice.gid);
        let capabilities = capabilities(&config, &limits, &attributes, &granted);
        let channel = CompletionChannel::new(&context)?;
        let nap_timer = watched(&epoll, &channel, &context)?;
        let meeting = meeting(&config);
        let device = VerbsDevice {
            capabilities,
            gid: choice.gid.clone(),
            choice,
            regions: Regions::default(),
            lid: attributes.lid,
            domains: config.addresses.iter().map(|_| None).collect(),
            inline_bytes: granted.inline_bytes,
            ordered_bytes: granted.ordered_bytes,
            queues: Vec::new(),
            halves: Vec::new(),
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
            nap_timer,
            nap: NAPS.0,
            watched: false,
            rung: false,
            failure: None,
        };
        Ok((device, meeting))
    }
}

/// Adds what a sleeping process waits for to the epoll instance; returns the timer of naps.
fn watched(epoll: &OwnedFd, channel: &CompletionChannel, context: &Context) -> Result<OwnedFd, StartError> {
    let failed = |what| move |error: rustix::io::Errno| StartError::System { what, errno: Errno(error.raw_os_error()) };
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let nap_timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(failed("make a timer"))?;
    for (fd, what) in [(channel.as_fd(), CHANNEL), (context.event_descriptor(), DEVICE), (nap_timer.as_fd(), NAP)] {
        let added = epoll::add(epoll, fd, epoll::EventData::new_u64(what), epoll::EventFlags::IN);
        added.map_err(failed("watch a descriptor"))?;
    }
    Ok(nap_timer)
}

fn meeting(config: &VerbsConfig) -> stentor_fabric_net::Config {
    stentor_fabric_net::Config {
        fabric: NAME.to_owned(),
        cluster: config.cluster.clone(),
        key: config.key.clone(),
        fingerprint: config.fingerprint,
        version: config.version,
        me: config.me,
        addresses: config.addresses.clone(),
        names: config.names.clone(),
        one_life: config.one_life,
        switch: config.switch.clone(),
    }
}

fn choose(config: &VerbsConfig) -> Result<Choice, ChooseError> {
    let own = config.addresses.get(config.me.index()).copied().flatten();
    // Whoever names the GID may have peers dial another address.
    let address = own.map(|address| address.ip()).filter(|_| config.gid_index.is_none());
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

/// Without the switch, where it cannot copy what comes from this address; and what is to be said of that.
fn copied(config: VerbsConfig, gid: &Gid) -> (VerbsConfig, Option<Trouble>) {
    if config.switch.is_none() || sets::is_copied(gid) {
        return (config, None);
    }
    (VerbsConfig { switch: None, ..config }, Some(Trouble::NoCopies { gid: gid.to_string() }))
}

fn gid_index(choice: &Choice) -> Result<u8, ChooseError> {
    let wanted = choice.gid.index;
    u8::try_from(wanted).map_err(|_| ChooseError::NoSuchGid { wanted, present: "those up to 255".to_owned() })
}

/// What is configured, or what the port has.
fn mtu(config: &VerbsConfig, context: &Context, port: &PortAttributes) -> Result<Mtu, StartError> {
    let most = port.mtu.unwrap_or(Mtu::B256);
    let Some(asked) = config.mtu else { return Ok(most) };
    let exact = Mtu::at_most(asked).filter(|mtu| mtu.bytes() == asked && *mtu <= most);
    exact.ok_or_else(|| StartError::Mtu { asked, device: context.name().to_owned(), most: most.bytes() })
}

fn capabilities(config: &VerbsConfig, limits: &Limits, port: &PortAttributes, granted: &Granted) -> Capabilities {
    // Each queue pair has places for all that it may have outstanding in one completion queue.
    // The queue pair of a set has more places than are asked for.
    let spare = if config.switch.is_some() { sets::SPARE } else { 0 };
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
        loopback: true,
        many_readers: true,
        max_completions: u32::MAX,
        hardware_multicast: config.switch.is_some(),
        revokes_in_hardware: true,
    }
}

#[cfg(test)]
mod tests {
    use stentor_fabric::ProcessId;
    use stentor_fabric_net::SwitchConfig;

    use super::*;
    use crate::device::GidKind;

    #[test]
    fn a_switch_that_cannot_copy_is_left_alone_and_that_is_said() {
        let with = |switch| VerbsConfig { switch, ..VerbsConfig::new("c", ProcessId(0), Vec::new()) };
        let gid = |kind| Gid { index: 3, bytes: "::ffff:10.0.0.1".parse().unwrap(), kind, interface: None };
        let switch = Some(SwitchConfig::new("10.0.0.9:7300".parse().unwrap()));
        let (config, trouble) = copied(with(switch.clone()), &gid(GidKind::RoceV2));
        assert_eq!((config.switch, trouble), (switch.clone(), None));
        let (config, trouble) = copied(with(switch), &gid(GidKind::RoceV1));
        assert_eq!(config.switch, None);
        let said = trouble.unwrap().to_string();
        assert!(said.contains("GID 3 RoCE v1 10.0.0.1") && said.contains("gid_index"), "{said}");
        assert_eq!(copied(with(None), &gid(GidKind::RoceV1)).1, None, "nobody asked for copies");
    }
}
