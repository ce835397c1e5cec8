//! What a device says by itself.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::context::{Context, PortNumber};
use crate::sys;

/// Something happened to a device, or to what was made with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceEvent {
    /// A queue pair is in the error state, because of what it or its peer did.
    QueuePair {
        /// Its number.
        number: u32,
        /// Which event.
        what: EventKind,
    },
    /// A completion queue was overrun, or cannot be read any more.
    CompletionQueue(EventKind),
    /// Something about a port: it is up, or down, or its address has changed.
    Port {
        /// The port.
        port: PortNumber,
        /// Which event.
        what: EventKind,
    },
    /// Something about the device as a whole: it does not work any more.
    Device(EventKind),
    /// Nothing that matters.
    Other(EventKind),
}

/// An `ibv_event_type`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventKind(pub u32);

impl EventKind {
    /// Packets do not go through the port any more.
    pub const PORT_DOWN: EventKind = EventKind(sys::IBV_EVENT_PORT_ERR);
    /// They do again.
    pub const PORT_UP: EventKind = EventKind(sys::IBV_EVENT_PORT_ACTIVE);
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            sys::IBV_EVENT_CQ_ERR => "completion queue error",
            sys::IBV_EVENT_QP_FATAL => "queue pair error",
            sys::IBV_EVENT_QP_REQ_ERR => "invalid request",
            sys::IBV_EVENT_QP_ACCESS_ERR => "access error",
            sys::IBV_EVENT_DEVICE_FATAL => "device error",
            sys::IBV_EVENT_PORT_ACTIVE => "port up",
            sys::IBV_EVENT_PORT_ERR => "port down",
            sys::IBV_EVENT_GID_CHANGE => "GID change",
            sys::IBV_EVENT_LID_CHANGE => "LID change",
            other => return write!(f, "event {other}"),
        })
    }
}

impl fmt::Debug for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventKind({}: {self})", self.0)
    }
}

impl Context {
    /// The next event. Reading never blocks.
    #[must_use]
    pub fn next_event(self: &Arc<Context>) -> Option<DeviceEvent> {
        let mut raw = sys::ibv_async_event::default();
        // SAFETY: the context is open while `self` lives; the event is written during the call, if it returns 0.
        let returned = unsafe { self.symbols().ibv_get_async_event(self.raw(), &raw mut raw) };
        if returned != 0 {
            return None;
        }
        let what = EventKind(raw.event_type);
        let event = match raw.event_type {
            sys::IBV_EVENT_QP_FATAL | sys::IBV_EVENT_QP_REQ_ERR | sys::IBV_EVENT_QP_ACCESS_ERR => {
                // SAFETY: these events are about a queue pair, which cannot end before they are acknowledged, below.
                let number = unsafe { (*raw.element.qp).qp_num };
                DeviceEvent::QueuePair { number, what }
            }
            sys::IBV_EVENT_CQ_ERR => DeviceEvent::CompletionQueue(what),
            sys::IBV_EVENT_PORT_ACTIVE
            | sys::IBV_EVENT_PORT_ERR
            | sys::IBV_EVENT_LID_CHANGE
            | sys::IBV_EVENT_GID_CHANGE => {
                // SAFETY: these events are about a port.
                let port = unsafe { raw.element.port_num };
                DeviceEvent::Port { port: PortNumber(u8::try_from(port).unwrap_or(0)), what }
            }
            sys::IBV_EVENT_DEVICE_FATAL => DeviceEvent::Device(what),
            _ => DeviceEvent::Other(what),
        };
        // SAFETY: it came from the call above, and is acknowledged once.
        unsafe { self.symbols().ibv_ack_async_event(&raw mut raw) };
        Some(event)
    }

    /// Readable when there is an event.
    #[must_use]
    pub fn event_descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open while `self` lives, and its descriptor as long.
        unsafe { BorrowedFd::borrow_raw((*self.raw()).async_fd) }
    }
}
