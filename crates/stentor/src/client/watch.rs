//! Hooks of a process into the messages of its [`LocalClient`](crate::LocalClient), for tests and tools.

use stentor_fabric::Fabric;
use stentor_multicast::{Client as Sender, GroupId, MessageId, SubmitError, Submitted, Wants};

const WANTS: Wants = Wants { notify: true, sync: false, enveloped: true, not_before: 0 };

/// A hook that sees a message before it is multicast: its id, its groups in rising order, its payload with the
/// session's envelope, and the order time that it must follow. That time is 0 for messages of the session protocol, and
/// before the session knows any time. The hook returns whether the message may be multicast.
pub type SeesMulticast = Box<dyn FnMut(MessageId, &[GroupId], &[u8], u64) -> bool + Send>;

/// The hooks of a process into its [`LocalClient`](crate::LocalClient).
#[derive(Default)]
pub struct ClientWatch {
    /// The hook that sees each message before it is multicast, including messages of the session protocol, such as
    /// renewals. With this hook, each message is copied into a new allocation.
    pub multicast: Option<SeesMulticast>,
    /// Returns whether the client keeps waiting while its session is opened or ended. Without this hook it does.
    pub goes_on: Option<Box<dyn Fn() -> bool + Send>>,
}

impl ClientWatch {
    pub(super) fn goes_on(&self) -> bool {
        self.goes_on.as_ref().is_none_or(|goes_on| goes_on())
    }
}

/// An operation on the multicast client below a [`LocalClient`](crate::LocalClient), for any fabric.
#[cfg(feature = "unstable-core")]
pub trait OnSender {
    /// The result of the operation.
    type Output;

    /// Runs the operation.
    fn on<F: crate::runtime::FabricDiagnostics>(self, sender: &mut Sender<F>) -> Self::Output;
}

/// Multicasts a message of a session after the time `not_before`, if the watch permits it.
#[inline]
pub(super) fn multicast<F: Fabric>(
    sender: &mut Sender<F>,
    watch: &mut ClientWatch,
    to: &[GroupId],
    parts: &[&[u8]],
    not_before: u64,
) -> Result<Submitted, SubmitError> {
    if let Some(sees) = &mut watch.multicast {
        show(sender, sees, (to, parts), not_before)?;
    }
    sender.submit_parts(to, parts, Wants { not_before, ..WANTS })
}

#[cold]
fn show<F: Fabric>(
    sender: &mut Sender<F>,
    sees: &mut SeesMulticast,
    (to, parts): (&[GroupId], &[&[u8]]),
    not_before: u64,
) -> Result<(), SubmitError> {
    let payload = parts.concat();
    let id = sender.next_id(to, &payload)?;
    // The caller reports this error as the end of the client: a client that may not multicast is useless.
    let ended = SubmitError::Superseded { client: sender.id().0 };
    if sees(id, to, &payload, not_before) { Ok(()) } else { Err(ended) }
}
