// SPDX-License-Identifier: MIT OR Apache-2.0

//! Several processes of one user on one UDP port: RoCE v2 has but one, 4791, and its packets say no
//! more than an address and a queue pair number.
//!
//! ```text
//!   member     a process's share of the port: what the engine drives
//!   broker     what one of the members does for all
//!   home       what a member holds: its slot, and every other's sockets
//!   numbers    queue pair numbers within a slot
//!   of_process a member as the engine drives it
//!   route      whose a message of the connection manager is
//!   protocol   what members and their broker say to each other
//!   error      why there is no share
//! ```
//!
//! A group belongs to one address and one user; that of `::` is for all addresses of IPv6 and IPv4. It has 64 sockets, among which the kernel chooses by the
//! upper 6 bits of the destination queue pair number, the *slot*. A member reads its own slot's, and
//! holds all of them ([`iwarp_os::slots::Vault`]), so when one is killed nothing changes for the
//! others. QP 1, the connection manager's, is in slot 0. It is read by the *broker*: the member that
//! has an abstract AF_UNIX name, by which new members find it. Names prove nothing, as every user can
//! take them; places in a register say who may be the broker, and which slots have members
//! ([`iwarp_os::register::Register`]). When the broker ends another takes its place; packets for QP 1
//! wait in slot 0's socket meanwhile, and all others never pass through it.
//!
//! Users trust their own processes and no others: the kernel says whose process is at the other end of a
//! connection, and lets no other user's socket have the port. A broken process of the same user
//! can say what it likes to the broker, which takes none of its time and memory beyond fixed bounds.

mod broker;
mod error;
mod home;
mod member;
mod numbers;
mod of_process;
mod protocol;
mod route;

pub use broker::Listening;
pub use error::ShareError;
pub use member::Member;
pub use protocol::Mad;
pub use route::PACKET;

/// The UDP port of RoCE v2.
pub const ROCE_PORT: u16 = 4791;
