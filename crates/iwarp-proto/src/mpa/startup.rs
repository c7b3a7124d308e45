// SPDX-License-Identifier: MIT OR Apache-2.0

//! The start of a connection: one Request, one Reply (RFC 5044 §7.1, RFC 6581 §9).
//!
//! [`Initiator`] and [`Responder`] read no clock and no socket. The deadline of each is fixed when
//! it is made and covers the whole frame, so a peer that sends octet by octet gains no time.

use alloc::vec::Vec;
use core::time::Duration;

use iwarp_types::Time;

use super::error::StartupError;
use super::rx::Deframer;
use super::tx::Framer;
use super::wire::{EnhancedData, Frame, FrameKind, ULP_NEGOTIATES};

pub use super::error::StartupFault;
pub use iwarp_types::RtrTypes;

#[cfg(test)]
mod tests;

/// The part that an end takes: the Initiator sends the Request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Sends the Request, and the first FPDU.
    Initiator,
    /// Sends the Reply, and no FPDU before it has received a valid one (RFC 5044 §7.1.2(4)).
    Responder,
}

/// A ready-to-receive indication: what a peer-to-peer Initiator sends before anything else
/// (RFC 6581 §9.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rtr {
    /// A zero-length Send.
    Send,
    /// A zero-length RDMA Write.
    Write,
    /// A zero-length RDMA Read.
    Read,
}

/// The wishes of this end for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Highest MPA revision, 1 or 2. An Initiator of revision 2 uses enhanced connection
    /// establishment; a Responder of revision 2 answers in the form of the Request.
    pub rev: u8,
    /// CRCs are wanted. They are used if either end wants them, and turning them off is for the
    /// administrator (RFC 5044 §4.4).
    pub crc: bool,
    /// Markers are wanted in what this end receives.
    pub markers: bool,
    /// Inbound read queue depth, up to 0x3FFE, or 0x3FFF: negotiated by the ULP. A Responder uses
    /// it in a Reply that rejects.
    pub ird: u16,
    /// Outbound read queue depth, likewise.
    pub ord: u16,
    /// Reads on top of `ird` and `ord` that the frames ask for and the program is not told of: 1
    /// where this end acknowledges by Reads of its own ([`crate::qp::Config::acknowledge`]), and a
    /// peer that does so too is expected.
    pub spare: u16,
    /// Peer-to-peer model: the Initiator begins with a ready-to-receive indication. A Responder
    /// follows the Request.
    pub peer_to_peer: bool,
    /// Indications that this end can send as Initiator, and take as Responder.
    pub rtr: RtrTypes,
    /// The time that the peer's frame may take, from the construction on.
    pub timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rev: 2,
            crc: true,
            markers: false,
            ird: 16,
            ord: 16,
            spare: 0,
            peer_to_peer: false,
            rtr: RtrTypes::ALL,
            timeout: Duration::from_secs(10),
        }
    }
}

impl Config {
    /// Changes it for a peer that knows revision 1 only: nothing enhanced. RFC 6581 §10 lets an
    /// Initiator try this on a new TCP connection after the first attempt was closed.
    #[must_use]
    pub fn downgraded(self) -> Self {
        Self { rev: 1, peer_to_peer: false, ..self }
    }

    fn check(&self) -> Result<(), StartupError> {
        if !(1..=2).contains(&self.rev) {
            return Err(StartupError::ConfiguredRevision(self.rev));
        }
        check_depth(self.ird)?;
        check_depth(self.ord)
    }

    fn rtr_types(&self) -> Result<RtrTypes, StartupError> {
        if self.rtr.is_empty() { Err(StartupError::NoRtrType) } else { Ok(self.rtr) }
    }
}

/// A depth with what is added for this end's own use; 0x3FFF stays what it is.
fn with_spare(depth: u16, spare: u16) -> u16 {
    if depth >= ULP_NEGOTIATES { depth } else { (depth + spare).min(ULP_NEGOTIATES - 1) }
}

/// A depth of the peer's without what it adds for its own use. One that adds nothing keeps 1.
fn without_spare(depth: u16, spare: u16) -> u16 {
    if depth >= ULP_NEGOTIATES { depth } else { depth.saturating_sub(spare).max(depth.min(1)) }
}

fn check_depth(depth: u16) -> Result<(), StartupError> {
    if depth > ULP_NEGOTIATES { Err(StartupError::Depth(depth)) } else { Ok(()) }
}

/// The terms on which the two frames agreed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Negotiated {
    /// This end's role.
    pub role: Role,
    /// MPA revision of the Reply.
    pub rev: u8,
    /// Set if IRD, ORD and the connection model were exchanged.
    pub enhanced: bool,
    /// CRCs are generated and checked by both ends.
    pub crc: bool,
    /// This end puts in markers.
    pub send_markers: bool,
    /// The peer puts in markers.
    pub receive_markers: bool,
    /// This end's inbound read queue depth; 0x3FFF only where the caller said so.
    pub ird: u16,
    /// This end's outbound read queue depth; 0x3FFF only where the caller said so.
    pub ord: u16,
    /// Requests of the peer's that this end takes on top of `ird`.
    pub spare_ird: u16,
    /// Requests that the peer takes on top of `ord`: what it granted of [`Config::spare`].
    pub spare_ord: u16,
    /// The IRD that the peer's frame gave (RFC 6581 §9.1: for the ULP), 0x3FFF included, less
    /// the spare that a peer like this end adds.
    pub peer_ird: Option<u16>,
    /// The ORD that the peer's frame gave, likewise.
    pub peer_ord: Option<u16>,
    /// The indication that this end, an Initiator, sends first.
    pub rtr: Option<Rtr>,
    /// Peer-to-peer model.
    pub peer_to_peer: bool,
    /// The reason why this end, an Initiator, has to enter Full Operation only to send a Terminate.
    pub fault: Option<StartupFault>,
}

impl Negotiated {
    /// Requests of the peer's that may be under way at once, those of the protocol included.
    pub const fn inbound(&self) -> u16 {
        self.ird + self.spare_ird
    }

    /// Requests of this end's that may be under way at once, those of the protocol included.
    pub const fn outbound(&self) -> u16 {
        self.ord + self.spare_ord
    }

    /// The sending half of Full Operation.
    pub fn framer(&self) -> Framer {
        Framer::new(self.crc, self.send_markers)
    }

    /// The receiving half of Full Operation.
    pub fn deframer(&self) -> Deframer {
        Deframer::new(self.crc, self.receive_markers)
    }

    /// Cuts the ORD to what the peer takes.
    fn take_ord(&mut self, ord: u16, spare: u16, peer_ird: u16) {
        if are_numbers(ord, peer_ird) {
            self.ord = ord.min(without_spare(peer_ird, spare));
            self.spare_ord = with_spare(ord, spare).min(peer_ird) - self.ord;
        }
    }
}

/// The Reply, as an Initiator received it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// Set if the connection was accepted. If not, MPA is left and TCP stays open.
    pub accepted: bool,
    /// The terms agreed. Of a rejecting Reply only the peer's values have a meaning.
    pub negotiated: Negotiated,
    /// Private data of the peer's ULP.
    pub private_data: Vec<u8>,
}

/// The Request, as a Responder received it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// MPA revision.
    pub rev: u8,
    /// Set if the frame is enhanced; the Reply takes the same form.
    pub enhanced: bool,
    /// The Initiator's IRD, 0x3FFF included, less the spare that a peer like this end adds.
    pub peer_ird: Option<u16>,
    /// The Initiator's ORD, likewise.
    pub peer_ord: Option<u16>,
    /// Peer-to-peer model.
    pub peer_to_peer: bool,
    /// Private data of the peer's ULP.
    pub private_data: Vec<u8>,
}

/// The end that sends the Request.
#[derive(Clone, Debug)]
pub struct Initiator {
    config: Config,
    request: Vec<u8>,
    deadline: Time,
}

impl Initiator {
    /// Makes the Request, which is to be sent at once.
    ///
    /// # Errors
    ///
    /// When the configuration or the length of `private_data` (512 octets; 508 in revision 2) is
    /// out of range.
    pub fn new(config: Config, private_data: &[u8], now: Time) -> Result<Self, StartupError> {
        config.check()?;
        let enhanced = (config.rev >= 2).then_some(EnhancedData {
            peer_to_peer: config.peer_to_peer,
            rtr: config.rtr,
            ird: with_spare(config.ird, config.spare),
            ord: with_spare(config.ord, config.spare),
        });
        if enhanced.is_some() && config.peer_to_peer {
            config.rtr_types()?;
        }
        let request = Frame {
            kind: FrameKind::Request,
            markers: config.markers,
            crc: config.crc,
            rejected: false,
            rev: config.rev,
            enhanced,
            private_data,
        }
        .encode()?;
        Ok(Self { config, request, deadline: now.plus(config.timeout) })
    }

    /// The octets of the Request.
    pub fn request(&self) -> &[u8] {
        &self.request
    }

    /// When the whole Reply must be there.
    pub fn deadline(&self) -> Time {
        self.deadline
    }

    /// [`StartupError::Timeout`] from the deadline on.
    pub fn handle_timeout(&self, now: Time) -> Result<(), StartupError> {
        expired(self.deadline, now)
    }

    /// Reads the Reply from all octets received so far. `None`: it is not whole yet. With it comes
    /// the number of octets it took; what follows a rejecting Reply belongs to the ULP.
    ///
    /// The octets behind an accepting one belong to Full Operation. The Responder has to be silent
    /// until our first FPDU (RFC 5044 §7.1.2(4)), but some are not, and what they send is well
    /// framed.
    ///
    /// # Errors
    ///
    /// When the Reply is malformed: TCP is to be closed.
    pub fn receive(&mut self, input: &[u8]) -> Result<Option<(Reply, usize)>, StartupError> {
        let Some((frame, consumed)) = Frame::parse(FrameKind::Reply, self.config.rev, input)?
        else {
            return Ok(None);
        };
        if !frame.rejected && self.config.rev >= 2 && frame.enhanced.is_none() {
            return Err(StartupError::NotEnhanced);
        }
        let negotiated = self.negotiate(&frame);
        let reply = Reply {
            accepted: !frame.rejected,
            negotiated,
            private_data: frame.private_data.to_vec(),
        };
        Ok(Some((reply, consumed)))
    }

    fn negotiate(&self, frame: &Frame<'_>) -> Negotiated {
        let config = &self.config;
        let mut negotiated = Negotiated {
            role: Role::Initiator,
            rev: frame.rev,
            enhanced: frame.enhanced.is_some(),
            crc: config.crc || frame.crc,
            send_markers: frame.markers,
            receive_markers: config.markers,
            ird: config.ird,
            ord: config.ord,
            spare_ird: with_spare(config.ird, config.spare) - config.ird,
            spare_ord: 0,
            peer_ird: frame.enhanced.map(|word| without_spare(word.ird, config.spare)),
            peer_ord: frame.enhanced.map(|word| without_spare(word.ord, config.spare)),
            rtr: None,
            peer_to_peer: false,
            fault: None,
        };
        let Some(word) = frame.enhanced else { return negotiated };
        if frame.rejected {
            return negotiated;
        }
        negotiated.take_ord(config.ord, config.spare, word.ird);
        // The Responder may not ask for more than our Request offered, and this end has no more.
        if are_numbers(config.ird, word.ord) && word.ord > with_spare(config.ird, config.spare) {
            negotiated.fault = Some(StartupFault::InsufficientIrd);
            return negotiated;
        }
        if word.peer_to_peer != config.peer_to_peer {
            negotiated.fault = Some(StartupFault::NoMatchingRtr);
            return negotiated;
        }
        if config.peer_to_peer {
            negotiated.peer_to_peer = true;
            self.choose_rtr(word, &mut negotiated);
        }
        negotiated
    }

    /// A Write costs neither end anything, a Read a slot of ORD and IRD, a Send one of the peer's
    /// receive buffers. Depths as they are to be while the indication is sent (RFC 6581 §9.3).
    fn choose_rtr(&self, word: EnhancedData, negotiated: &mut Negotiated) {
        let both = self.config.rtr.and(word.rtr);
        negotiated.rtr = if both.write {
            Some(Rtr::Write)
        } else if both.read && negotiated.ord + negotiated.spare_ord > 0 {
            Some(Rtr::Read)
        } else if both.send {
            Some(Rtr::Send)
        } else if both.read && word.ird > 0 {
            // This end wanted no Reads; the Responder made room for this one (RFC 6581 §9.1).
            negotiated.ord = 1;
            Some(Rtr::Read)
        } else {
            negotiated.fault = Some(StartupFault::NoMatchingRtr);
            None
        };
    }
}

/// The end that sends the Reply.
#[derive(Clone, Debug)]
pub struct Responder {
    config: Config,
    deadline: Time,
    request: Option<Received>,
}

/// The part of the Request on which the Reply depends.
#[derive(Clone, Copy, Debug)]
struct Received {
    rev: u8,
    markers: bool,
    crc: bool,
    enhanced: Option<EnhancedData>,
}

impl Responder {
    /// Waits for a Request from `now` on.
    pub fn new(config: Config, now: Time) -> Self {
        Self { config, deadline: now.plus(config.timeout), request: None }
    }

    /// When the whole Request must be there.
    pub fn deadline(&self) -> Time {
        self.deadline
    }

    /// [`StartupError::Timeout`] from the deadline on.
    pub fn handle_timeout(&self, now: Time) -> Result<(), StartupError> {
        expired(self.deadline, now)
    }

    /// Reads the Request from all octets received so far. `None`: it is not whole yet. With it
    /// comes the number of octets it took.
    ///
    /// # Errors
    ///
    /// When the Request is malformed or octets follow it: TCP is to be closed without a Reply.
    pub fn receive(&mut self, input: &[u8]) -> Result<Option<(Request, usize)>, StartupError> {
        self.config.check()?;
        let Some((frame, consumed)) = Frame::parse(FrameKind::Request, self.config.rev, input)?
        else {
            return Ok(None);
        };
        // The Initiator sends no FPDU before our Reply (RFC 5044 §7.1.2(3)).
        if input.len() > consumed {
            return Err(StartupError::SurplusOctets);
        }
        self.request = Some(Received {
            rev: frame.rev,
            markers: frame.markers,
            crc: frame.crc,
            enhanced: frame.enhanced,
        });
        let request = Request {
            rev: frame.rev,
            enhanced: frame.enhanced.is_some(),
            peer_ird: frame.enhanced.map(|word| without_spare(word.ird, self.config.spare)),
            peer_ord: frame.enhanced.map(|word| without_spare(word.ord, self.config.spare)),
            peer_to_peer: frame.enhanced.is_some_and(|word| word.peer_to_peer),
            private_data: frame.private_data.to_vec(),
        };
        Ok(Some((request, consumed)))
    }

    /// Grants so many Reads on top of what the program grants, as [`Config::spare`] does, where
    /// only the Request tells for what it is. The result has the Initiator's IRD and ORD then, as
    /// [`Request::peer_ird`] and [`Request::peer_ord`] have them.
    pub fn set_spare(&mut self, spare: u16) -> (Option<u16>, Option<u16>) {
        self.config.spare = spare;
        let word = self.request.and_then(|request| request.enhanced);
        let without = |depth| without_spare(depth, spare);
        (word.map(|word| without(word.ird)), word.map(|word| without(word.ord)))
    }

    /// Makes the Reply that accepts, with this end's depths: numbers, or 0x3FFF where the ULP
    /// negotiates. The result has the values agreed: ORD is cut to the Initiator's IRD, and an IRD
    /// of 0 becomes 1 where the Initiator may begin with an RDMA Read.
    ///
    /// # Errors
    ///
    /// When no Request was received, or an argument is out of range.
    pub fn accept(
        &self,
        ird: u16,
        ord: u16,
        private_data: &[u8],
    ) -> Result<(Vec<u8>, Negotiated), StartupError> {
        let request = self.request.ok_or(StartupError::NoRequest)?;
        check_depth(ird)?;
        check_depth(ord)?;
        let mut negotiated = Negotiated {
            role: Role::Responder,
            rev: request.rev,
            enhanced: request.enhanced.is_some(),
            crc: self.config.crc || request.crc,
            send_markers: request.markers,
            receive_markers: self.config.markers,
            ird,
            ord,
            spare_ird: with_spare(ird, self.config.spare) - ird,
            spare_ord: 0,
            peer_ird: request.enhanced.map(|word| without_spare(word.ird, self.config.spare)),
            peer_ord: request.enhanced.map(|word| without_spare(word.ord, self.config.spare)),
            rtr: None,
            peer_to_peer: request.enhanced.is_some_and(|word| word.peer_to_peer),
            fault: None,
        };
        let mut enhanced = None;
        if let Some(word) = request.enhanced {
            let rtr = self.offered_rtr(word)?;
            negotiated.take_ord(ord, self.config.spare, word.ird);
            if rtr.read && negotiated.inbound() == 0 && word.ord != ULP_NEGOTIATES {
                negotiated.ird = 1;
            }
            enhanced = Some(answer(word, rtr, negotiated.inbound(), negotiated.outbound()));
        }
        let reply = self.reply(&request, enhanced, false, private_data)?;
        Ok((reply, negotiated))
    }

    /// Makes the Reply that rejects. An enhanced one tells the IRD and ORD of the configuration,
    /// which are what this end would have needed (RFC 6581 §9.1).
    ///
    /// # Errors
    ///
    /// When no Request was received, or the private data is too long.
    pub fn reject(&self, private_data: &[u8]) -> Result<Vec<u8>, StartupError> {
        let request = self.request.ok_or(StartupError::NoRequest)?;
        let enhanced = match request.enhanced {
            Some(word) => {
                let rtr = self.offered_rtr(word)?;
                let Config { ird, ord, spare, .. } = self.config;
                Some(answer(word, rtr, with_spare(ird, spare), with_spare(ord, spare)))
            }
            None => None,
        };
        self.reply(&request, enhanced, true, private_data)
    }

    /// The types that both ends can do, or else all that this end can do: then it is for the
    /// Initiator to see that there is no match (RFC 6581 §9.2).
    fn offered_rtr(&self, word: EnhancedData) -> Result<RtrTypes, StartupError> {
        if !word.peer_to_peer {
            return Ok(RtrTypes::NONE);
        }
        let own = self.config.rtr_types()?;
        let both = own.and(word.rtr);
        Ok(if both.is_empty() { own } else { both })
    }

    fn reply(
        &self,
        request: &Received,
        enhanced: Option<EnhancedData>,
        rejected: bool,
        private_data: &[u8],
    ) -> Result<Vec<u8>, StartupError> {
        Frame {
            kind: FrameKind::Reply,
            markers: self.config.markers,
            // The CRC that is going to be: the peer's wish obliges this end too (RFC 5044 §7.1.1).
            crc: self.config.crc || request.crc,
            rejected,
            rev: request.rev,
            enhanced,
            private_data,
        }
        .encode()
    }
}

/// The enhanced word of a Reply: 0x3FFF is answered by 0x3FFF, IRD and ORD crosswise
/// (RFC 6581 §9.1).
fn answer(request: EnhancedData, rtr: RtrTypes, ird: u16, ord: u16) -> EnhancedData {
    let unless = |ulp_negotiates: bool, depth: u16| {
        if ulp_negotiates { ULP_NEGOTIATES } else { depth }
    };
    EnhancedData {
        peer_to_peer: request.peer_to_peer,
        rtr,
        ird: unless(request.ord == ULP_NEGOTIATES, ird),
        ord: unless(request.ird == ULP_NEGOTIATES, ord),
    }
}

/// True if both depths are numbers, so that they can be compared.
fn are_numbers(a: u16, b: u16) -> bool {
    a != ULP_NEGOTIATES && b != ULP_NEGOTIATES
}

fn expired(deadline: Time, now: Time) -> Result<(), StartupError> {
    if now >= deadline { Err(StartupError::Timeout) } else { Ok(()) }
}
