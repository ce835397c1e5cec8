//! Known defects of providers, by name and version. Tests of this crate fail when a provider no longer has the defect
//! `masks_miss_unexpected` or `fetches_nothing`. No test detects that one of the other defects has disappeared.

use crate::info::Info;
use crate::load::Version;

/// Defects of a provider, which this crate works around or because of which it does not use a feature that the provider
/// offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quirks {
    /// `true` if a tagged receive with ignored bits does not match messages that arrived before it was posted.
    pub masks_miss_unexpected: bool,
    /// `true` if fetching atomics complete without returning the old value.
    pub fetches_nothing: bool,
    /// `true` if closing an endpoint with outstanding operations may never return.
    pub close_hangs: bool,
    /// `true` if endpoints of one process share memory, and closing one endpoint removes this memory from the other
    /// endpoints.
    pub close_harms_neighbours: bool,
    /// `true` if a landed write does not make the descriptor of a completion queue readable, because the NIC, another
    /// process or a thread of the provider has stored its data.
    pub silent_writes: bool,
}

impl Quirks {
    /// Returns the quirks of a provider.
    #[must_use]
    pub fn of(info: &Info) -> Quirks {
        Quirks::named(info.provider(), info.provider_version())
    }

    fn named(provider: &str, version: Version) -> Quirks {
        let rxd = provider.ends_with("ofi_rxd");
        Quirks {
            // The version in Debian 12 compares tags with the mask of the message instead of the mask of the receive. A
            // message has no mask. Providers of libfabric 1.18 have version 118.0.
            masks_miss_unexpected: provider == "shm" && version < Version { major: 118, minor: 0 },
            fetches_nothing: rxd,
            close_hangs: rxd,
            close_harms_neighbours: provider == "shm",
            silent_writes: !["tcp;ofi_rxm", "udp;ofi_rxd"].contains(&provider),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quirks_have_versions() {
        let of = |provider, major| Quirks::named(provider, Version { major, minor: 0 });
        assert!(of("shm", 117).masks_miss_unexpected && !of("shm", 118).masks_miss_unexpected);
        assert!(of("udp;ofi_rxd", 117).close_hangs && of("udp;ofi_rxd", 117).fetches_nothing);
        for provider in ["tcp;ofi_rxm", "sockets", "efa", "verbs;ofi_rxm"] {
            let quirks = of(provider, 117);
            let harmful = quirks.masks_miss_unexpected || quirks.fetches_nothing || quirks.close_hangs;
            assert!(!harmful && !quirks.close_harms_neighbours, "{provider}");
            assert_eq!(quirks.silent_writes, provider != "tcp;ofi_rxm", "{provider}");
        }
    }
}
