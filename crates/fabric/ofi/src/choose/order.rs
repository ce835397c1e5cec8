//! The order in which providers are tried, and the rules by which one of them is skipped.

use super::{ChooseError, ORDER};
use crate::info::InfoError;

/// The origin of the list of providers to try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked<'a> {
    /// The configuration names the providers, in this order.
    ByName,
    /// The configuration names no providers. Contains the EFA devices that the kernel lists.
    ByNobody(&'a [String]),
}

/// Returns the names to try if the configuration names none.
pub(crate) fn usual(same_host: bool) -> Vec<String> {
    ORDER.into_iter().filter(|name| *name != "shm" || same_host).map(str::to_owned).collect()
}

/// Returns the first provider in `names` that can be used.
///
/// Skips providers that are not available. If the configuration names the providers, those that fail are skipped, too.
/// Otherwise it is an error if a provider fails, if libfabric does not offer `efa` although the host has EFA devices,
/// or if space in `/dev/shm` is short at the moment. The process must not switch to a provider that was not requested.
pub(crate) fn first<T>(
    names: &[String],
    asked: Asked<'_>,
    mut take: impl FnMut(&str) -> Result<T, ChooseError>,
    there: impl FnOnce() -> Vec<String>,
) -> Result<T, ChooseError> {
    let mut last = None;
    for name in names {
        let error = match take(name) {
            Ok(taken) => return Ok(taken),
            Err(error) => error,
        };
        if let Asked::ByNobody(efa) = asked {
            match &error {
                ChooseError::Absent { why: InfoError::Nobody { .. }, .. } if name == "efa" && !efa.is_empty() => {
                    let devices = efa.to_vec();
                    return Err(ChooseError::PassedOver { provider: name.clone(), devices, there: there() });
                }
                // Other processes of this host may have chosen this provider before the space was used up. A process
                // with another provider could not reach them.
                ChooseError::NoRoom { shortage, .. } if shortage.passes() => return Err(error),
                ChooseError::Absent { why: InfoError::Nobody { .. }, .. }
                | ChooseError::NoRoom { .. }
                | ChooseError::Another { .. }
                | ChooseError::Address { .. }
                | ChooseError::Device { .. } => {}
                _ => return Err(error),
            }
        }
        last = Some(error);
    }
    Err(match last {
        Some(only) if names.len() == 1 => only,
        // The named device or address excluded a provider that is available.
        Some(error @ (ChooseError::Device { .. } | ChooseError::Address { .. })) => error,
        _ if asked != Asked::ByName => ChooseError::None,
        _ => ChooseError::NoneOf { asked: names.to_vec(), there: there() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno::Errno;

    /// A host on which only the listed providers are available.
    struct Host<'a>(&'a [&'a str]);

    impl Host<'_> {
        fn take(&self, name: &str) -> Result<String, ChooseError> {
            if self.0.contains(&name) {
                return Ok(name.to_owned());
            }
            let why = InfoError::Nobody { what: name.to_owned() };
            Err(ChooseError::Absent { provider: name.to_owned(), why, there: self.there() })
        }

        fn there(&self) -> Vec<String> {
            self.0.iter().map(|name| (*name).to_owned()).collect()
        }

        fn usual(&self, same_host: bool, efa: &[&str]) -> Result<String, ChooseError> {
            let efa: Vec<String> = efa.iter().map(|name| (*name).to_owned()).collect();
            first(&usual(same_host), Asked::ByNobody(&efa), |name| self.take(name), || self.there())
        }

        fn named(&self, names: &[&str]) -> Result<String, ChooseError> {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            first(&names, Asked::ByName, |name| self.take(name), || self.there())
        }
    }

    #[test]
    fn best_available_provider_is_chosen_in_the_usual_order() {
        let all = ["udp;ofi_rxd", "tcp;ofi_rxm", "sockets", "shm", "verbs;ofi_rxm", "efa"];
        let order = ["efa", "verbs;ofi_rxm", "shm", "tcp;ofi_rxm", "udp;ofi_rxd"];
        for gone in 0..order.len() {
            let there: Vec<_> = all.into_iter().filter(|name| !order[..gone].contains(name)).collect();
            assert_eq!(Host(&there).usual(true, &[]).as_deref(), Ok(order[gone]), "{there:?}");
            let between = if order[gone] == "shm" { "tcp;ofi_rxm" } else { order[gone] };
            assert_eq!(Host(&there).usual(false, &[]).as_deref(), Ok(between), "{there:?}");
        }
        // A provider outside the usual order is used only if it is named.
        assert_eq!(Host(&["sockets", "psm2", "tcp"]).usual(true, &[]), Err(ChooseError::None));
        assert_eq!(Host(&["shm"]).usual(false, &[]), Err(ChooseError::None));
        assert_eq!(Host(&["sockets"]).named(&["sockets"]).as_deref(), Ok("sockets"));
    }

    #[test]
    fn named_providers_are_tried_in_order_and_no_others() {
        let host = Host(&["efa", "shm", "tcp;ofi_rxm"]);
        assert_eq!(host.named(&["tcp;ofi_rxm", "efa"]).as_deref(), Ok("tcp;ofi_rxm"));
        assert_eq!(host.named(&["verbs;ofi_rxm", "tcp;ofi_rxm"]).as_deref(), Ok("tcp;ofi_rxm"));
        let absent = host.named(&["verbs;ofi_rxm"]).unwrap_err();
        assert!(matches!(&absent, ChooseError::Absent { provider, .. } if provider == "verbs;ofi_rxm"), "{absent}");
        let none = host.named(&["verbs;ofi_rxm", "udp;ofi_rxd"]).unwrap_err();
        assert!(matches!(&none, ChooseError::NoneOf { there, .. } if there.len() == 3), "{none}");
    }

    #[test]
    fn present_device_is_not_passed_over_unless_another_provider_is_named() {
        let host = Host(&["shm", "tcp;ofi_rxm"]);
        for same_host in [true, false] {
            let error = host.usual(same_host, &["rdmap0s6"]).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, ChooseError::PassedOver { .. }), "{text}");
            assert!(["rdmap0s6", "\"efa\"", "tcp;ofi_rxm"].iter().all(|part| text.contains(part)), "{text}");
        }
        assert_eq!(Host(&["efa", "shm"]).usual(true, &["rdmap0s6"]).as_deref(), Ok("efa"));
        assert_eq!(host.named(&["tcp;ofi_rxm"]).as_deref(), Ok("tcp;ofi_rxm"));
    }

    #[test]
    fn failing_provider_is_an_error_and_the_next_is_not_tried() {
        let failed = |name: &str| {
            let why = InfoError::Failed { errno: Errno::NO_MEMORY };
            Err(ChooseError::Absent { provider: name.to_owned(), why, there: Vec::new() })
        };
        let mut tried = Vec::new();
        let take = |name: &str| -> Result<(), _> {
            tried.push(name.to_owned());
            failed(name)
        };
        let error = first(&usual(true), Asked::ByNobody(&[]), take, Vec::new).unwrap_err();
        assert!(matches!(error, ChooseError::Absent { why: InfoError::Failed { .. }, .. }), "{error}");
        assert_eq!(tried, ["efa"]);
    }

    #[test]
    fn excluding_address_is_the_reported_error() {
        let address = ChooseError::Address { provider: "tcp;ofi_rxm".into(), address: [192, 0, 2, 77].into() };
        let take = |name: &str| -> Result<(), _> {
            if name == "tcp;ofi_rxm" { Err(address.clone()) } else { Host(&[]).take(name).map(|_| ()) }
        };
        let names = ["efa", "tcp;ofi_rxm"].map(str::to_owned);
        assert_eq!(first(&names, Asked::ByName, take, Vec::new), Err(address.clone()));
    }
}
