//! Asynchronous events of a device.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::context::{Context, PortNumber};
use crate::sys;

/// An asynchronous event of a device or of an object created on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceEvent {
    /// A queue pair entered the error state.
    QueuePair {
        /// Number of the queue pair.
        number: u32,
        /// Type of the event.
        what: EventKind,
    },
    /// A completion queue was overrun, or cannot be read any more.
    CompletionQueue(EventKind),
    /// A port changed its state or its address.
    Port {
        /// Number of the port.
        port: PortNumber,
        /// Type of the event.
        what: EventKind,
    },
    /// The whole device has failed.
    Device(EventKind),
    /// An event that this crate does not handle.
    Other(EventKind),
}

/// An `ibv_event_type`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventKind(pub u32);

impl EventKind {
    /// The port does not carry packets any more.
    pub const PORT_DOWN: EventKind = EventKind(sys::IBV_EVENT_PORT_ERR);
    /// The port carries packets again.
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
    /// Returns the next event, or `None` if there is none. Never blocks.
    #[must_use]
    pub fn next_event(self: &Arc<Context>) -> Option<DeviceEvent> {
        let mut raw = sys::ibv_async_event::default();
        // SAFETY: the context is open while `self` is live; the call writes the event if it returns 0.
        let returned = unsafe { self.symbols().ibv_get_async_event(self.raw(), &raw mut raw) };
        if returned != 0 {
            return None;
        }
        let what = EventKind(raw.event_type);
        let event = match raw.event_type {
            sys::IBV_EVENT_QP_FATAL | sys::IBV_EVENT_QP_REQ_ERR | sys::IBV_EVENT_QP_ACCESS_ERR => {
                // SAFETY: these events refer to a queue pair, which is not destroyed before they are acknowledged
                // below.
                let number = unsafe { (*raw.element.qp).qp_num };
                DeviceEvent::QueuePair { number, what }
            }
            sys::IBV_EVENT_CQ_ERR => DeviceEvent::CompletionQueue(what),
            sys::IBV_EVENT_PORT_ACTIVE
            | sys::IBV_EVENT_PORT_ERR
            | sys::IBV_EVENT_LID_CHANGE
            | sys::IBV_EVENT_GID_CHANGE => {
                // SAFETY: these events refer to a port.
                let port = unsafe { raw.element.port_num };
                DeviceEvent::Port { port: PortNumber(u8::try_from(port).unwrap_or(0)), what }
            }
            sys::IBV_EVENT_DEVICE_FATAL => DeviceEvent::Device(what),
            _ => DeviceEvent::Other(what),
        };
        // SAFETY: the event was returned by the call above, and it is acknowledged once.
        unsafe { self.symbols().ibv_ack_async_event(&raw mut raw) };
        Some(event)
    }

    /// Returns the descriptor that is readable when an event is pending.
    #[must_use]
    pub fn event_descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the context and its descriptor are open while `self` is live.
        unsafe { BorrowedFd::borrow_raw((*self.raw()).async_fd) }
    }
}
