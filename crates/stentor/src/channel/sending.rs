//! The future of a message that is being sent.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::core::Progress;
use super::{Channel, ChannelError};

/// The future of [`Channel::send`]: ready when the message is handed over to the fabric.
///
/// # Cancel safety
/// It can be dropped at any time. If no byte of the message had left, the message is not sent, and [`Channel::sent`] is what it was before.
/// Otherwise the drop copies the bytes that are left, the channel sends them by itself, and the peer reads the whole message.
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
            // It failed, or nothing of it is left.
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
