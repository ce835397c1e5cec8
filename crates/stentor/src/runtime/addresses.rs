//! The addresses of a configuration's processes, on fabrics between hosts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use stentor_fabric::ProcessId;
use stentor_fabric_net::{HostName, source_address};
use stentor_multicast::{ClientId, GroupId, ProcessRole};
use stentor_switch_host::SwitchConfig;

use super::address::AddressError;
use super::cluster::ClusterRuntime;
use super::hosts::{self, Found};
use crate::config::{MemberConfig, NebConfig};

impl ClusterRuntime {
    /// Returns the address of a process according to the configuration.
    ///
    /// # Errors
    /// Returns an [`AddressError`] if the configured address cannot be used here.
    pub fn address(&self, process: ProcessId) -> Result<IpAddr, AddressError> {
        let addresses = self.addresses(process, None)?;
        Ok(addresses[process.index()].expect("a process knows its own address").ip())
    }
}

/// First number of a broadcast's fan-out sets. One switch serves both the multicast and the broadcast.
const NEB_SETS: u16 = 1 << 15;

impl ClusterRuntime {
    /// Returns the configuration of the switch for a broadcast, with other numbers of sets than the multicast's.
    pub(super) fn neb_switch(&self) -> Option<SwitchConfig> {
        let cluster = Some(self.config().cluster().to_owned());
        self.config().switch().map(|switch| SwitchConfig { cluster, first_set: NEB_SETS, ..switch.clone() })
    }

    /// Returns the host names of all members, as the configuration has them.
    pub(super) fn host_names(&self) -> Vec<Option<HostName>> {
        hosts::names(self.config().groups().iter().flat_map(|group| group.members()))
    }

    /// Looks up the addresses of a group's members. Returns for each member all its addresses, or an error. This may
    /// take several seconds.
    pub(crate) fn look_up_members(&self, group: GroupId) -> Vec<Result<Vec<SocketAddr>, AddressError>> {
        let group = self.config().groups().get(usize::from(group.0));
        hosts::resolve(group.into_iter().flat_map(|group| group.members()), None)
    }

    /// Returns the host names of a broadcast's processes.
    pub(super) fn neb_host_names(&self, neb: &NebConfig) -> Vec<Option<HostName>> {
        hosts::names(self.config().groups().get(neb.group()).into_iter().flat_map(|group| group.members()))
    }

    /// Returns the addresses of the members and of this process. `bind` replaces the configured address of this
    /// process. A member whose name cannot be resolved at present has no address; it is looked up again later.
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
        let mut addresses = ClusterRuntime::table(members, me, bind)?;
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

    /// Like [`addresses`](Self::addresses), for the processes of a broadcast.
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
        ClusterRuntime::table(members, me, bind)
    }

    /// Returns one address of each member whose name can be resolved.
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
        // A member must resolve its own name, because no other process could reach it otherwise. A client needs at
        // least one member.
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

/// Refuses a mix of IPv4 and IPv6. Packets do not cross between them, so the processes would wait for each other
/// forever.
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

/// Returns the address of a client that was started without one.
fn client_address(member: SocketAddr, client: ClientId) -> Result<IpAddr, AddressError> {
    if let IpAddr::V4(ip) = member.ip()
        && ip.is_loopback()
    {
        // On IPv4 loopback, the address depends on the client id and on the second octet of the first member's address.
        // So the clients of two clusters on one host have different addresses if their members differ in this octet.
        let [high, low] = (client.0 + 1).to_be_bytes();
        return Ok(Ipv4Addr::new(127, ip.octets()[1], 255 - high, low).into());
    }
    let unknown = |source| AddressError::Unknown { process: "a client".into(), address: member.to_string(), source };
    source_address(member).map_err(unknown)
}
