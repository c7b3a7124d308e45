// SPDX-License-Identifier: MIT OR Apache-2.0

//! Accesses to memory that were refused, in words: what was asked for, what there is, what to do.
//!
//! The end that refuses knows the cause and says it to its own user. The peer gets a code, which is
//! the RFCs' and the IBA's: some codes stand for several causes, so its line names those.

use std::borrow::Cow;

use iwarp_mem::{Described, Key};
use iwarp_types::{
    Access, AccessError, Accessor, Memory as _, Protocol, Reason, Refusal, RefusedBy, Sge, WcOp,
};
use tracing::Value;
use tracing::field::{debug, display};

use super::Endpoint;
use crate::engine::mover::StreamMover;
use crate::report;

/// The parts of a line about a refused access, beside its operation.
#[derive(Debug, Default)]
struct Words {
    key: Option<String>,
    address: Option<String>,
    length: u64,
    range: Option<String>,
    rights: Option<String>,
    cause: Option<Cow<'static, str>>,
    hint: Option<Cow<'static, str>>,
}

/// The reason for which this end refused an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    Unknown,
    Deregistered,
    Window,
    OtherDomain,
    OtherQueuePair,
    Bounds,
    Right,
    QueuePairRight,
    Invalidated,
    Unbound,
    BoundAnew,
    Unaligned,
    Gone,
}

impl Endpoint {
    /// Writes down the access by which a connection ended: a queue pair has one at most, and is in
    /// the error state then.
    #[cold]
    pub(super) fn report_refusal(
        &self,
        link: Option<&dyn StreamMover>,
        reason: Reason,
        is_fault: bool,
        refusal: &Refusal,
    ) {
        let peer = peer_of(link);
        let (qp, code, meaning) = (self.id(), reason.notation(), reason.name());
        let (operation, wr_id) = (debug(refusal.op), refusal.wr_id);
        let words = self.words_of(reason, refusal);
        let (key, address) = (words.key.map(display), words.address.map(display));
        let (range, rights) = (words.range.map(display), words.rights.map(display));
        let (length, cause, hint) = (words.length, words.cause.as_deref(), words.hint.as_deref());
        match is_fault {
            true => {
                report!(
                    burst 32,
                    WARN,
                    qp,
                    peer,
                    %code,
                    meaning,
                    cause,
                    operation,
                    wr_id,
                    key,
                    address,
                    length,
                    range,
                    rights,
                    hint,
                    "this end terminated the connection"
                );
            }
            false => {
                report!(
                    burst 32,
                    WARN,
                    qp,
                    peer,
                    %code,
                    meaning,
                    operation,
                    wr_id,
                    key,
                    address,
                    length,
                    hint,
                    "the peer terminated the connection"
                );
            }
        }
    }

    /// Writes down that registered memory was taken away: once for each stream, which ends by it.
    #[cold]
    pub(super) fn report_bad_address(&self, addr: u64, remote: bool, refusal: Option<&Refusal>) {
        let qp = self.id();
        let whose = if remote { "the peer's access to" } else { "a request of the program with" };
        let operation = refusal.map(|refusal| debug(refusal.op));
        let wr_id = refusal.and_then(|refusal| refusal.wr_id);
        let element = refusal.and_then(|refusal| refusal.memory.first());
        let key = element.map(|element| display(hex_key(element)));
        let length = refusal.map(|refusal| refusal.octets);
        report!(
            WARN,
            operation,
            wr_id,
            key,
            length,
            "queue pair {qp:#08x}: {whose} address {addr:#x} failed, because the memory was \
             unmapped, protected or truncated while registered: connection terminated",
        );
    }

    fn words_of(&self, reason: Reason, refusal: &Refusal) -> Words {
        let element = self.refused_element(refusal);
        let mut words = Words {
            key: element.map(hex_key),
            address: element.map(|element| format!("{:#x}", element.addr)),
            length: element.map_or(refusal.octets, |element| element.length.into()),
            ..Words::default()
        };
        let element = match refusal.by {
            RefusedBy::Peer => {
                words.hint = hint_on_peers_code(reason, refusal);
                return words;
            }
            RefusedBy::QueuePair | RefusedBy::Memory(_) => element,
        };
        let Some(element) = element else { return words };
        let key = self.engine.memory.describe(element.lkey);
        if let Key::Present(Described { grant: Some((start, len, access)), .. }) = key {
            words.range = Some(format!("{start:#x}..{:#x}", start.saturating_add(len)));
            words.rights = Some(names_of(access));
        }
        let found = match refusal.by {
            RefusedBy::Memory(error) => find(error, &key, self.who_accesses(refusal), refusal),
            RefusedBy::QueuePair | RefusedBy::Peer => Some(Found::QueuePairRight),
        };
        if let Some(found) = found {
            let is_window = matches!(key, Key::Present(Described { is_window: true, .. }));
            words.cause = Some(cause(found, refusal.right, is_window));
            words.hint = Some(hint(found, refusal, reason, is_window));
        }
        words
    }

    /// Of a scatter/gather list, the element that was refused; the first where that is not to be
    /// found out any more.
    fn refused_element<'a>(&self, refusal: &'a Refusal) -> Option<&'a Sge> {
        let first = refusal.memory.first()?;
        if refusal.memory.len() == 1 {
            return Some(first);
        }
        let who = self.who_accesses(refusal);
        let write = refusal.right.contains(Access::LOCAL_WRITE);
        let is_refused = |sge: &&Sge| self.engine.memory.check_local(who, **sge, write).is_err();
        refusal.memory.iter().find(is_refused).or(Some(first))
    }

    fn who_accesses(&self, refusal: &Refusal) -> Accessor {
        match refusal.op {
            WcOp::Recv => Accessor { pd: self.pd_of_receives(), ..self.who },
            _ => self.who,
        }
    }
}

/// The peer's name, as a field of a line.
pub(super) fn peer_of(link: Option<&dyn StreamMover>) -> Option<impl Value> {
    link.map(|link| display(link.peer()))
}

fn hex_key(element: &Sge) -> String {
    format!("{:#010x}", element.lkey.0)
}

/// The rights by their names.
fn names_of(access: Access) -> String {
    let names: Vec<&str> = access.iter_names().map(|(name, _)| name).collect();
    if names.is_empty() { "LOCAL_READ".to_owned() } else { names.join(" | ") }
}

/// The cause, in more detail than a peer may know it.
fn find(error: AccessError, key: &Key, who: Accessor, refusal: &Refusal) -> Option<Found> {
    Some(match error {
        AccessError::InvalidStag => match *key {
            // Memory that changes at this moment is most likely going.
            Key::Deregistered | Key::Changing => Found::Deregistered,
            Key::Present(found) if found.is_window && refusal.is_local() => Found::Window,
            Key::Present(found) if found.is_window && !found.is_valid => Found::Unbound,
            Key::Present(found) if !found.is_valid => Found::Invalidated,
            Key::Another(found) if found.is_window => Found::BoundAnew,
            Key::Unknown | Key::Another(_) | Key::Present(_) => Found::Unknown,
        },
        AccessError::NotAssociated => match *key {
            Key::Present(found) if found.pd == who.pd => Found::OtherQueuePair,
            _ => Found::OtherDomain,
        },
        AccessError::Bounds | AccessError::Wrap => Found::Bounds,
        AccessError::Rights => Found::Right,
        AccessError::Unaligned => Found::Unaligned,
        AccessError::BadAddress(_) => Found::Gone,
        AccessError::CannotInvalidate => return None,
    })
}

fn cause(found: Found, right: Access, is_window: bool) -> Cow<'static, str> {
    let of = if is_window { "window" } else { "region" };
    Cow::Borrowed(match found {
        Found::Unknown => "no region or window here has this key",
        Found::Deregistered => "the key was deregistered",
        Found::Window => "the key is a window's, which is for the peer only",
        Found::OtherDomain => "the key belongs to another protection domain",
        Found::OtherQueuePair => "the key belongs to another queue pair",
        Found::Bounds if is_window => "the access reaches beyond the window",
        Found::Bounds => "the access reaches beyond the region",
        Found::Right => return Cow::Owned(format!("the {of} does not grant {}", names_of(right))),
        Found::QueuePairRight => {
            return Cow::Owned(format!("the queue pair does not grant {}", names_of(right)));
        }
        Found::Invalidated => "the key was invalidated",
        Found::Unbound => "the window is not bound, or not any more",
        Found::BoundAnew => "the window was bound anew, under another key",
        Found::Unaligned => "the target of an atomic operation is not aligned to 8 bytes",
        Found::Gone => "the memory was unmapped, protected or truncated while registered",
    })
}

/// Advice at the end that refused.
fn hint(found: Found, refusal: &Refusal, reason: Reason, is_window: bool) -> Cow<'static, str> {
    Cow::Borrowed(match found {
        Found::Unknown if refusal.is_local() => {
            "put the lkey of a registered region into the scatter/gather element"
        }
        Found::Unknown => {
            "give the peer the rkey that the registration has returned; if you did, look at the \
             byte order in which it was sent"
        }
        Found::Deregistered if refusal.is_local() => {
            "deregister memory only when the requests that use it have completed"
        }
        Found::Deregistered => {
            "deregister memory only when the peer does not use it any more, and give it the new \
             key after each registration"
        }
        Found::Window => "put the lkey of the region into the scatter/gather element",
        Found::OtherDomain => "register the memory in the protection domain of this queue pair",
        Found::OtherQueuePair => "bind the window through the queue pair whose peer uses it",
        Found::Bounds if refusal.is_local() => {
            "address and length must lie in the range: register all the memory that requests use"
        }
        Found::Bounds => {
            "address and length must lie in the range: do both ends use the same sizes, and the \
             address that belongs to the key?"
        }
        Found::Right => return Cow::Owned(hint_on_right(refusal.right, reason, is_window)),
        Found::QueuePairRight => {
            let right = names_of(refusal.right);
            return Cow::Owned(format!(
                "put IBV_ACCESS_{right} into the qp_access_flags of this queue pair"
            ));
        }
        Found::Invalidated => {
            "register the memory anew after an invalidation, and give the peer the new key"
        }
        Found::Unbound => {
            "wait for the completion of the bind before the peer gets the key, and bind anew after \
             an invalidation"
        }
        Found::BoundAnew => "give the peer the key of the latest bind",
        Found::Unaligned => "the peer must use an address that is a multiple of 8",
        Found::Gone => "keep memory as it is until it is deregistered",
    })
}

fn hint_on_right(right: Access, reason: Reason, is_window: bool) -> String {
    let how = if is_window { "bind the window" } else { "register the memory" };
    // RFC 5041 §7.2 has no code for it.
    let told = match (reason.protocol(), reason.code()) {
        (Protocol::Iwarp, INVALID_STAG) => {
            " (the peer hears \"invalid STag\", as iWARP has no code for a Write without the right)"
        }
        _ => "",
    };
    format!("{how} with {}{told}", flags_of(right, is_window))
}

/// The flags that grant a right. Of a region, those to write need another.
fn flags_of(right: Access, is_window: bool) -> String {
    let writes = right.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
    let local = if writes && !is_window { " | IBV_ACCESS_LOCAL_WRITE" } else { "" };
    format!("IBV_ACCESS_{}{local}", names_of(right))
}

/// Layer, type and code of a Terminate: an invalid STag, as DDP has it of tagged buffers.
const INVALID_STAG: u32 = 0x1100;

const UNALIGNED: &str = "atomic operations need an address that is a multiple of 8";

/// Advice where the peer has failed by itself.
pub(super) const PEERS_OWN: &str = "the peer could not use memory of its own, such as that of the \
                                    receive for a message: its log says more";

/// Advice where the peer has refused a request, of which its code says only so much.
fn hint_on_peers_code(reason: Reason, refusal: &Refusal) -> Option<Cow<'static, str>> {
    let right = Some(refusal.right).filter(|right| Access::REMOTE.contains(*right));
    let right = right.filter(|right| !right.is_empty());
    let is_atomic = refusal.right == Access::REMOTE_ATOMIC;
    let is_aligned = refusal.memory.first().is_none_or(|memory| memory.addr.is_multiple_of(8));
    let text = match (reason.protocol(), reason.code()) {
        (Protocol::Iwarp, INVALID_STAG) => {
            "the peer has no such key (never registered there, deregistered, invalidated, or a \
             window's that is not bound), or its memory or queue pair lacks \
             IBV_ACCESS_REMOTE_WRITE, for which iWARP has no code of its own; the peer's log says \
             which"
        }
        (Protocol::Iwarp, 0x0100) => {
            "the peer has no such key: never registered there, deregistered, invalidated, or a \
             window's that is not bound; the peer's log says which"
        }
        (Protocol::Iwarp, 0x0101 | 0x0104 | 0x1101 | 0x1103) => {
            "address and length must lie in the peer's region: do both ends use the same sizes, \
             and the address that belongs to the key?"
        }
        (Protocol::Iwarp, 0x0102) => {
            let flags = flags_of(right?, false);
            return Some(Cow::Owned(format!(
                "the peer must grant it: register the memory with {flags}, and have the right in the \
                 qp_access_flags of its queue pair"
            )));
        }
        (Protocol::Iwarp, 0x0103 | 0x1102) => {
            "the key belongs to another protection domain or queue pair of the peer's: it must \
             register the memory in the domain of the queue pair that is connected with this one"
        }
        (Protocol::Iwarp, 0x0207) if is_atomic => UNALIGNED,
        (Protocol::Roce, 0x61) if is_atomic && !is_aligned => UNALIGNED,
        (Protocol::Iwarp, 0x0206) | (Protocol::Roce, 0x61) => {
            let right = names_of(right?);
            return Some(Cow::Owned(format!(
                "the peer must put IBV_ACCESS_{right} into the qp_access_flags of its queue pair"
            )));
        }
        (Protocol::Iwarp, 0) | (Protocol::Roce, 0x63) => PEERS_OWN,
        (Protocol::Roce, 0x62) => {
            "the peer refused key, address, length or right, which have one code: is the key \
             registered and valid there, do both ends use the same sizes, and does the memory \
             grant the access? The peer's log says which"
        }
        _ => return None,
    };
    Some(Cow::Borrowed(text))
}
