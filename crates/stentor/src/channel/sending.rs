//! The future that sends a message.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::core::Progress;
use super::{Channel, ChannelError};

/// The future of [`Channel::send`]. It completes when the message is handed to the fabric.
///
/// # Cancel safety
/// The future can be dropped at any time. If no byte of the message has left, the message is not sent, and
/// [`Channel::sent`] is unchanged. Otherwise the drop copies the remaining bytes, the channel sends them by itself, and
/// the peer receives the whole message.
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct Sending<'a> {
    channel: &'a mut Channel,
    message: &'a [u8],
    progress: Progress,
}

impl<'a> Sending<'a> {
    pub(super) fn new(channel: &'a mut Channel, message: &'a [u8]) -> Self {
        Sending { channel, message, progress: Progress::New }
    }
}

impl Future for Sending<'_> {
    type Output = Result<(), ChannelError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Sending { channel, message, progress } = self.get_mut();
        let polled = channel.poll_until(context, |channel| Ok(channel.push(message, progress)?.then_some(())));
        if polled.is_ready() {
            // The message has failed or was sent completely.
            *progress = Progress::Done;
        }
        polled
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.channel.let_go(self.message, &mut self.progress);
    }
}
