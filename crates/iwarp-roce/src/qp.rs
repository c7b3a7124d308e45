// SPDX-License-Identifier: MIT OR Apache-2.0

//! A queue pair of any type.

use alloc::boxed::Box;

use iwarp_types::{
    Access, Core, Disposition, Event, Memory, PostError, QpState, QpType, Reason, ReceivePool,
    RecvRequest, Refusal, SendRequest, Standing, Time, TransitionError, Wanted,
};

use crate::config::{Attributes, Config};
use crate::core::DatagramCore;
use crate::rc::Rc;
use crate::uc::Uc;
use crate::ud::Ud;
use crate::wire::{Burst, Counters, Packet, Path};

/// Defines the enum of the listed queue pair types, which passes each call to its variant.
macro_rules! queue_pairs {
    ($($(#[$doc:meta])* $kind:ident($core:ty),)+) => {
        /// A queue pair of any type.
        #[derive(Debug)]
        pub enum Qp {
            $($(#[$doc])* $kind(Box<$core>),)+
        }

        $(impl From<$core> for Qp {
            fn from(core: $core) -> Self {
                Self::$kind(Box::new(core))
            }
        })+

        queue_pairs! { @core [$($kind)+]
            state(&self) -> QpState;
            modify(&mut self, to: QpState) -> Result<(), TransitionError>;
            post_send(&mut self, request: &SendRequest<'_>) -> Result<(), PostError>;
            post_recv(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError>;
            outstanding(&self) -> (usize, usize);
            is_connected(&self) -> bool;
            disconnect(&mut self) -> ();
            abort(&mut self) -> ();
            unreachable(&mut self) -> ();
            lost(&mut self) -> ();
            timed_out(&mut self) -> ();
            fail_locally(&mut self, what: &'static str) -> ();
            disposition(&self) -> Disposition;
            wanted(&mut self) -> Wanted;
            poll_event(&mut self) -> Option<Event>;
            has_events(&self) -> bool;
            take_refusal(&mut self) -> Option<Refusal>;
            standing(&mut self) -> Standing;
            poll_timeout(&self) -> Option<Time>;
            may_want_time(&self) -> bool;
            handle_timeout(&mut self, now: Time) -> ();
            arrivals(&self) -> u64;
            is_outlived(&self) -> bool;
            has_parked(&self) -> bool;
            is_stalled(&self) -> bool;
            set_remote_access(&mut self, access: Access) -> ();
            read_depths(&self) -> (usize, usize);
        }

        impl DatagramCore for Qp {
            fn set_attributes(&mut self, attributes: &Attributes) {
                match self {
                    $(Self::$kind(core) => core.set_attributes(attributes),)+
                }
            }

            fn receive<M: Memory + ?Sized>(
                &mut self,
                packet: &Packet<'_>,
                path: &Path,
                now: Time,
                memory: &M,
                receives: &dyn ReceivePool,
            ) {
                match self {
                    $(Self::$kind(core) => core.receive(packet, path, now, memory, receives),)+
                }
            }

            fn congested(&mut self, path: &Path, now: Time) {
                match self {
                    $(Self::$kind(core) => core.congested(path, now),)+
                }
            }

            fn sent_late(&mut self, by: core::time::Duration) {
                match self {
                    $(Self::$kind(core) => core.sent_late(by),)+
                }
            }

            fn transmit<M: Memory + ?Sized>(
                &mut self,
                burst: &mut Burst,
                now: Time,
                memory: &M,
            ) {
                match self {
                    $(Self::$kind(core) => core.transmit(burst, now, memory),)+
                }
            }

            fn take_counters(&mut self) -> Counters {
                match self {
                    $(Self::$kind(core) => core.take_counters(),)+
                }
            }
        }
    };
    // One method after another, each with all types.
    (@core $kinds:tt $($method:ident($($args:tt)*) -> $result:ty;)+) => {
        impl Core for Qp {
            type Terminated = Reason;
            type Fault = Reason;

            $(queue_pairs! { @method $kinds $method($($args)*) -> $result })+
        }
    };
    (@method [$($kind:ident)+] $method:ident(&self) -> $result:ty) => {
        #[inline]
        fn $method(&self) -> $result {
            match self {
                $(Self::$kind(core) => core.$method(),)+
            }
        }
    };
    (@method [$($kind:ident)+] $method:ident(&mut self) -> $result:ty) => {
        #[inline]
        fn $method(&mut self) -> $result {
            match self {
                $(Self::$kind(core) => core.$method(),)+
            }
        }
    };
    (@method [$($kind:ident)+] $method:ident(&mut self, $arg:ident: $type:ty) -> $result:ty) => {
        #[inline]
        fn $method(&mut self, $arg: $type) -> $result {
            match self {
                $(Self::$kind(core) => core.$method($arg),)+
            }
        }
    };
}

queue_pairs! {
    /// Reliable connected.
    Rc(Rc),
    /// Unreliable connected.
    Uc(Uc),
    /// Unreliable datagram.
    Ud(Ud),
}

impl Qp {
    /// A queue pair of the configured type, in Reset; `None` for a type that RoCE lacks.
    pub fn new(config: Config) -> Option<Self> {
        Some(match config.qp_type {
            QpType::Rc => Rc::new(config).into(),
            QpType::Uc => Uc::new(config).into(),
            QpType::Ud => Ud::new(config).into(),
            _ => return None,
        })
    }

    /// Its type.
    pub const fn qp_type(&self) -> QpType {
        match self {
            Self::Rc(_) => QpType::Rc,
            Self::Uc(_) => QpType::Uc,
            Self::Ud(_) => QpType::Ud,
        }
    }

    /// The attributes of a queue pair with a peer of its own (RC, UC).
    pub fn attributes(&self) -> Option<&Attributes> {
        match self {
            Self::Rc(core) => Some(core.attributes()),
            Self::Uc(core) => Some(core.attributes()),
            Self::Ud(_) => None,
        }
    }

    /// The queue pair, if it is of the type UD.
    pub fn ud(&mut self) -> Option<&mut Ud> {
        match self {
            Self::Ud(core) => Some(core),
            Self::Rc(_) | Self::Uc(_) => None,
        }
    }
}
