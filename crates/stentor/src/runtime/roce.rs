//! Processes of a configuration on RoCEv2.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use stentor_fabric::ProcessId;
use stentor_fabric_roce::driver::{Chances, source_address};
use stentor_fabric_roce::{NetConfig, RoceConfig, RoceFabric, SwitchConfig};
use stentor_multicast::{ClientId, ProcessRole};

use super::address::AddressError;
use super::cluster::{Plan, StartError};
use super::hosts::{self, Found};
use crate::config::{KeyError, MemberConfig, NebConfig};

/// What a process is told besides the configuration.
#[derive(Clone, Debug, Default)]
pub struct RoceSeat {
    /// Directory of the configuration: a key's file may be relative to it.
    pub directory: PathBuf,
    /// This process's address; `None`: a member's is in the configuration, a client's is the one that this host reaches the
    /// first member from.
    pub bind: Option<IpAddr>,
    /// Where to write a capture of all packets.
    pub pcap: Option<PathBuf>,
    /// A bad network.
    pub chances: Chances,
    /// The seed of its badness.
    pub seed: u64,
    /// Whether the network's faults may be set while the process runs.
    pub faults: bool,
}

impl Plan {
    /// Starts a process on RoCEv2 in user space.
    ///
    /// # Errors
    /// [`StartError::Key`], [`StartError::Address`], [`StartError::Roce`].
    pub fn roce(&self, me: ProcessId, seat: &RoceSeat) -> Result<RoceFabric, StartError> {
        let net = self.net_config(me, (seat.bind, &seat.directory))?;
        let switch = self.config().switch().cloned();
        Ok(RoceFabric::start(net, RoceConfig { switch, ..seat.config(me, self.longest_message()) })?)
    }

    /// The same for a process of the broadcast of `[neb]`, counted in its group.
    ///
    /// # Errors
    /// As [`roce`](Self::roce).
    pub fn neb_roce(&self, neb: &NebConfig, me: ProcessId, seat: &RoceSeat) -> Result<RoceFabric, StartError> {
        let net = self.neb_net_config(neb, me, (seat.bind, &seat.directory))?;
        let switch = self.neb_switch();
        Ok(RoceFabric::start(net, RoceConfig { switch, ..seat.config(me, neb.config().payload_bytes as u32) })?)
    }
}

impl Plan {
    /// Returns the address of a process, unless it is started at another one.
    ///
    /// # Errors
    /// [`AddressError`], if the configuration names one that means nothing here.
    pub fn address(&self, process: ProcessId) -> Result<IpAddr, AddressError> {
        let addresses = self.addresses(process, None)?;
        Ok(addresses[process.index()].expect("a process knows its own address").ip())
    }
}

/// The sets of a broadcast are numbered from here on: one switch serves both.
const NEB_SETS: u16 = 1 << 15;

impl Plan {
    /// How a process meets its peers on a fabric that reaches other hosts: the address that it is bound to, if it is not that
    /// of the configuration, and the directory of the configuration.
    pub(super) fn net_config(
        &self,
        me: ProcessId,
        (bind, directory): (Option<IpAddr>, &Path),
    ) -> Result<NetConfig, StartError> {
        let addresses = self.addresses(me, bind)?;
        let most = self.most_bytes(me)?;
        let names = hosts::names(self.config().groups().iter().flat_map(|group| group.members()));
        let net = NetConfig::new(self.config().cluster(), me, addresses).names(names);
        self.with_key(net, most, directory)
    }

    /// The same for a process of the broadcast of `[neb]`.
    pub(super) fn neb_net_config(
        &self,
        neb: &NebConfig,
        me: ProcessId,
        (bind, directory): (Option<IpAddr>, &Path),
    ) -> Result<NetConfig, StartError> {
        let addresses = self.neb_addresses(neb, me, bind)?;
        let most = self.neb_bytes(neb)?;
        let names = hosts::names(self.config().groups().get(neb.group()).into_iter().flat_map(|group| group.members()));
        let cluster = self.config().cluster();
        // Registers are written once: a process without its memory would split what others have agreed on.
        let net = NetConfig::new(&format!("{cluster}.neb"), me, addresses).names(names).one_life();
        self.with_key(net, most, directory)
    }

    /// The switch, as a broadcast uses it beside the multicast.
    pub(super) fn neb_switch(&self) -> Option<SwitchConfig> {
        let cluster = Some(self.config().cluster().to_owned());
        self.config().switch().map(|switch| SwitchConfig { cluster, first_set: NEB_SETS, ..switch.clone() })
    }

    /// With the cluster's key, and room for `most` bytes of regions.
    fn with_key(&self, net: NetConfig, most: u64, directory: &Path) -> Result<NetConfig, StartError> {
        let key = self.config().key().ok_or(KeyError::Unnamed)?.read(directory)?;
        // As on shared memory: staging doubles what is printed where records are longer than the inline limit.
        Ok(net.key(key).fingerprint(self.config().fingerprint()).max_bytes(2 * most + (64 << 20)))
    }

    /// The longest message between the processes of a multicast, bytes.
    pub(super) fn longest_message(&self) -> u32 {
        self.limits().body_ring(self.topology()).max_payload() as u32
    }

    /// Where all processes are; `bind` is this one's address, if it is not that of the configuration. Members whose names mean
    /// nothing at present have none: they are looked for later.
    pub(super) fn addresses(
        &self,
        me: ProcessId,
        bind: Option<IpAddr>,
    ) -> Result<Vec<Option<SocketAddr>>, AddressError> {
        let processes = self.topology().processes();
        if me.index() >= processes {
            return Err(AddressError::NoProcess { process: me, processes });
        }
        let members = self.config().groups().iter().flat_map(|group| group.members());
        let mut addresses = Plan::table(members, me, bind)?;
        addresses.resize(processes, None);
        let first = addresses.iter().flatten().next().copied();
        let own = &mut addresses[me.index()];
        match (self.topology().role(me), bind, first) {
            (Some(ProcessRole::Client(_)), Some(bind), _) => *own = Some(SocketAddr::new(bind, 0)),
            (Some(ProcessRole::Client(client)), None, Some(first)) => {
                *own = Some(SocketAddr::new(client_address(first, client)?, 0));
            }
            _ => {}
        }
        Ok(addresses)
    }

    /// The same for the processes of a broadcast.
    pub(super) fn neb_addresses(
        &self,
        neb: &NebConfig,
        me: ProcessId,
        bind: Option<IpAddr>,
    ) -> Result<Vec<Option<SocketAddr>>, AddressError> {
        let members = self.config().groups().get(neb.group()).map_or(&[][..], |group| group.members());
        if me.index() >= members.len() {
            return Err(AddressError::NoProcess { process: me, processes: members.len() });
        }
        Plan::table(members, me, bind)
    }

    /// One address of each member.
    fn table<'a>(
        members: impl IntoIterator<Item = &'a MemberConfig> + Clone,
        me: ProcessId,
        bind: Option<IpAddr>,
    ) -> Result<Vec<Option<SocketAddr>>, AddressError> {
        let bind = bind.map(|bind| bind.to_canonical());
        if let Some(found) = bind.filter(|bind| hosts::is_link_local(*bind)) {
            return Err(AddressError::LinkLocalBind { found });
        }
        let mut found = hosts::resolve(members.clone(), bind.map(|bind| (me.index(), bind)));
        // Nobody knows where a member is whose own name means nothing; a client needs one member to begin with.
        let is_member = me.index() < found.len();
        let needed = if is_member { Some(me.index()) } else { found.iter().all(Result::is_err).then_some(0) };
        if let Some(at) = needed.filter(|at| found.get(*at).is_some_and(Result::is_err)) {
            return found.swap_remove(at).map(|_| Vec::new());
        }
        let v4 = hosts::is_ipv4(&found, bind);
        let pick = |found: &Found| hosts::pick(found.as_deref().ok()?, v4);
        let addresses: Vec<_> = found.iter().map(pick).collect();
        let own = addresses.get(me.index()).copied().flatten().map(|own| own.ip()).or(bind);
        let first = addresses.iter().flatten().next().map(|first| first.ip());
        if let Some(own) = own.or(first) {
            one_family(members, own, &addresses)?;
        }
        Ok(addresses)
    }
}

/// Refuses a process that others wait for in vain: packets do not go from IPv4 to IPv6.
fn one_family<'a>(
    members: impl IntoIterator<Item = &'a MemberConfig>,
    own: IpAddr,
    addresses: &[Option<SocketAddr>],
) -> Result<(), AddressError> {
    let other = |address: &Option<SocketAddr>| address.is_some_and(|address| address.is_ipv4() != own.is_ipv4());
    let mut all = members.into_iter().zip(addresses);
    let Some((member, Some(address))) = all.find(|(_, address)| other(address)) else { return Ok(()) };
    Err(AddressError::Family { process: member.id().to_owned(), address: address.ip(), own })
}

impl RoceSeat {
    /// Configures a process whose messages are at most `longest` bytes long.
    fn config(&self, me: ProcessId, longest: u32) -> RoceConfig {
        RoceConfig {
            message_bytes: message_bytes(longest),
            pcap: self.pcap.clone(),
            chances: self.chances,
            seed: self.seed.wrapping_add(u64::from(me.0)),
            faults: self.faults,
            ..RoceConfig::default()
        }
    }

    /// A process whose configuration is in this file.
    #[must_use]
    pub fn beside(config: &Path) -> Self {
        RoceSeat { directory: config.parent().unwrap_or(Path::new("")).to_owned(), seed: 1, ..RoceSeat::default() }
    }
}

/// The limit of messages, bytes, where the protocol's are at most `longest` bytes long.
pub(super) fn message_bytes(longest: u32) -> u32 {
    (longest + 4096).max(256 << 10)
}

/// Where a client is that was not told.
fn client_address(member: SocketAddr, client: ClientId) -> Result<IpAddr, AddressError> {
    if let IpAddr::V4(ip) = member.ip()
        && ip.is_loopback()
    {
        // Beside the members, by its place, so that two clusters of one host do not meet.
        let [high, low] = (client.0 + 1).to_be_bytes();
        return Ok(Ipv4Addr::new(127, ip.octets()[1], 255 - high, low).into());
    }
    let unknown = |source| AddressError::Unknown { process: "a client".into(), address: member.to_string(), source };
    source_address(member).map_err(unknown)
}
