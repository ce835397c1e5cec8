//! Who sees what a client multicasts.

use stentor_fabric::Fabric;
use stentor_multicast::{Client as Sender, GroupId, MessageId, SubmitError, Submitted, Wants};

const WANTS: Wants = Wants { notify: true, sync: false, enveloped: true, not_before: 0 };

/// Sees a message: its id, its groups in rising order, its payload with the session's envelope, and the time that it comes after, which is 0
/// before the session has heard of any. Returns whether it may be multicast.
pub type SeesMulticast = Box<dyn FnMut(MessageId, &[GroupId], &[u8], u64) -> bool + Send>;

/// What a process has to do with the messages and the waits of its [`LocalClient`](crate::LocalClient).
#[derive(Default)]
pub struct ClientWatch {
    /// Sees each message before it is multicast, those of the session among them. With it, each message is copied and allocates.
    pub multicast: Option<SeesMulticast>,
    /// Returns whether the client goes on waiting while its session is opened or ended. Without it, it does.
    pub goes_on: Option<Box<dyn Fn() -> bool + Send>>,
}

impl ClientWatch {
    pub(super) fn goes_on(&self) -> bool {
        self.goes_on.as_ref().is_none_or(|goes_on| goes_on())
    }
}

/// What a process does with the protocol's client below a [`LocalClient`](crate::LocalClient), on whatever fabric that is.
#[cfg(feature = "unstable-core")]
pub trait OnSender {
    /// What comes of it.
    type Output;

    /// Does it.
    fn on<F: crate::runtime::FabricDiagnostics>(self, sender: &mut Sender<F>) -> Self::Output;
}

/// Multicasts a message of a session, which comes after the time `not_before`, if the watch lets it.
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
    // A client that may not multicast is of no use any more.
    let ended = SubmitError::Superseded { client: sender.id().0 };
    if sees(id, to, &payload, not_before) { Ok(()) } else { Err(ended) }
}
