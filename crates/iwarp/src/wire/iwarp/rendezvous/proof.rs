// SPDX-License-Identifier: MIT OR Apache-2.0

//! The proof of the two ends to each other that they are whom their programs expect.
//!
//! The secret that both programs have told each other, beside addresses and queue pair numbers,
//! which others can find out, is where the packets of each end start to count: 24 bits that most
//! programs draw at random. That is little. A stranger who sees a digest over so few bits finds the
//! bits within a second, and then has them: a stranger who comes here would only have to ask for
//! our digest first, one who waits where the peer should be would be given it.
//!
//! So the ends do not send digests of the secret, they agree on a key by SPAKE2 (RFC 9382): each
//! sends one share, in which the secret masks a random point. Both arrive at one key if they have
//! masked with equal secrets; else their keys have nothing to do with each other. The shares tell
//! nothing of the secret, neither to a listener nor to a party: taking part means to try one
//! secret, and to fail costs a connection. The number of tries is limited ([`Tries`]).
//!
//! Then both prove by keyed digests that they have the key: the responder along with its share,
//! the initiator after that. The digests speak for all that was said before, and the key for both
//! addresses and numbers and who is the initiator; so nothing can be replayed, reflected, or taken
//! to another queue pair.
//!
//! The key is about one of the two numbers, as an end in RTR does not know its own yet. The other
//! one follows in a second digest under that key, a [`Claim`]. It finds programs whose numbers
//! differ. It does not make strangers guess twice: one that has guessed the first number finds the
//! second in the claim that it gets, and can always say that it is in RTR.
//!
//! (Considered: digests keyed by the PSNs, whichever end proves first. They would need one hash
//! instead of 0.2 ms, but reveal the secret to the first stranger that connects, or that waits in
//! the place of a dead peer.) The shares and the responder's proof travel in the private data of
//! MPA's Request and Reply; the initiator's proof is 64 bytes before its first FPDU, only between
//! ends with this library. The digest serves as the random generator, because `rand_core::OsRng`
//! panics where the system has no random numbers.

use std::io;
use std::net::IpAddr;

use hmac::{Hmac, Mac};
use iwarp_types::Time;
use rand_core::{CryptoRng, RngCore};
use sha2::{Digest, Sha256};
use spake2::{Ed25519Group, Identity, Password, Spake2};

use crate::engine::gid::Gid;

/// Bytes of a share.
pub(crate) const SHARE: usize = 33;
/// Bytes of a proof.
pub(crate) const TAG: usize = 32;
/// Bytes that an initiator sends before the first FPDU: a proof and a claim.
pub(crate) const PROOF: usize = 2 * TAG;

/// One end, as both programs know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Party {
    pub(crate) gid: IpAddr,
    pub(crate) qpn: u32,
}

impl Party {
    fn identity(&self) -> Identity {
        let mut name = Gid::raw_of(self.gid).to_vec();
        name.extend(self.qpn.to_be_bytes());
        Identity::new(&name)
    }
}

/// Which end this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Initiator,
    Responder,
}

/// One end's part before it knows the other's share.
pub(crate) struct Opening {
    state: Spake2<Ed25519Group>,
    pub(crate) share: [u8; SHARE],
}

impl Opening {
    /// `secret` has 24 bits. Fails where there is no randomness.
    pub(crate) fn new(
        side: Side,
        secret: u32,
        initiator: &Party,
        responder: &Party,
    ) -> io::Result<Self> {
        let random = Random::new()?;
        let password = Password::new(secret.to_be_bytes());
        let (initiator, responder) = (initiator.identity(), responder.identity());
        let (state, share) = match side {
            Side::Initiator => Spake2::start_a_with_rng(&password, &initiator, &responder, random),
            Side::Responder => Spake2::start_b_with_rng(&password, &initiator, &responder, random),
        };
        let share = share.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(Self { state, share })
    }

    /// The key, if `theirs` is a share of the other side's at all.
    pub(crate) fn finish(self, theirs: &[u8; SHARE]) -> Option<Key> {
        Some(Key(self.state.finish(theirs).ok()?))
    }
}

/// The key that both ends have if they know a common secret.
pub(crate) struct Key(Vec<u8>);

impl Key {
    /// The proof that one side has the key, given all that was said before it.
    pub(crate) fn prove(&self, side: Side, request: &[u8], reply: &[u8]) -> [u8; TAG] {
        self.digest(side, request, reply).finalize().into_bytes().into()
    }

    /// True if `tag` is that proof.
    pub(crate) fn is_proven(
        &self,
        tag: &[u8; TAG],
        side: Side,
        request: &[u8],
        reply: &[u8],
    ) -> bool {
        self.digest(side, request, reply).verify_slice(tag).is_ok()
    }

    /// One side's word for the number that the key is not about.
    pub(crate) fn claim(&self, side: Side, psn: u32, request: &[u8], reply: &[u8]) -> [u8; TAG] {
        self.digest_of(side, psn, request, reply).finalize().into_bytes().into()
    }

    fn digest_of(&self, side: Side, psn: u32, request: &[u8], reply: &[u8]) -> Hmac<Sha256> {
        let mut digest = self.digest(side, request, reply);
        digest.update(b"other psn");
        digest.update(&psn.to_be_bytes());
        digest
    }

    fn digest(&self, side: Side, request: &[u8], reply: &[u8]) -> Hmac<Sha256> {
        let mut digest = Hmac::new_from_slice(&self.0).expect("keys may have any length");
        digest.update(match side {
            Side::Initiator => b"iwarp qp initiator",
            Side::Responder => b"iwarp qp responder",
        });
        for words in [request, reply] {
            digest.update(&(words.len() as u64).to_be_bytes());
            digest.update(words);
        }
        digest
    }
}

/// The other end's word for this end's number, until this end has been told it.
pub(crate) struct Claim {
    pub(crate) key: Key,
    pub(crate) side: Side,
    pub(crate) request: Vec<u8>,
    pub(crate) reply: Vec<u8>,
    pub(crate) tag: [u8; TAG],
}

impl Claim {
    /// True where the other end has been told `psn`.
    pub(crate) fn is_about(&self, psn: u32) -> bool {
        let Self { key, side, request, reply, tag } = self;
        key.digest_of(*side, psn, request, reply).verify_slice(tag).is_ok()
    }
}

/// As many bytes as are asked for, from 32 of the system's.
struct Random {
    seed: [u8; 32],
    count: u64,
}

impl Random {
    fn new() -> io::Result<Self> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)?;
        Ok(Self { seed, count: 0 })
    }
}

impl RngCore for Random {
    fn next_u32(&mut self) -> u32 {
        self.next_u64() as u32
    }

    fn next_u64(&mut self) -> u64 {
        let mut octets = [0; 8];
        self.fill_bytes(&mut octets);
        u64::from_ne_bytes(octets)
    }

    fn fill_bytes(&mut self, to: &mut [u8]) {
        for chunk in to.chunks_mut(32) {
            self.count += 1;
            let block =
                Sha256::new().chain_update(self.seed).chain_update(self.count.to_be_bytes());
            chunk.copy_from_slice(&block.finalize()[..chunk.len()]);
        }
    }

    fn try_fill_bytes(&mut self, to: &mut [u8]) -> Result<(), rand_core::Error> {
        self.fill_bytes(to);
        Ok(())
    }
}

impl CryptoRng for Random {}

/// The number of times that a secret may be tried, and how much time proofs cost. A stranger needs
/// eight million tries of a random secret, on average: 24 days, with the genuine peer away.
pub(crate) struct Tries {
    left: u32,
    /// When the last one was granted.
    since: Time,
}

impl Tries {
    const MOST: u32 = 64;
    /// Another one.
    const EACH: std::time::Duration = std::time::Duration::from_millis(250);

    /// Takes one, if there may be another.
    pub(crate) fn take(&mut self, now: Time) -> bool {
        while self.left < Self::MOST && now >= self.since.plus(Self::EACH) {
            self.left += 1;
            self.since = self.since.plus(Self::EACH);
        }
        if self.left == Self::MOST {
            self.since = now;
        }
        let granted = self.left > 0;
        self.left -= u32::from(granted);
        granted
    }
}

impl Default for Tries {
    fn default() -> Self {
        Self { left: Self::MOST, since: Time::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    fn party(last: u8, qpn: u32) -> Party {
        Party { gid: Ipv4Addr::new(192, 0, 2, last).into(), qpn }
    }

    /// The keys of both ends.
    fn keys(secrets: [u32; 2], initiators: [Party; 2], responders: [Party; 2]) -> [Key; 2] {
        let [a, b] = [(Side::Initiator, 0), (Side::Responder, 1)].map(|(side, at)| {
            Opening::new(side, secrets[at], &initiators[at], &responders[at]).unwrap()
        });
        let shares = [a.share, b.share];
        [a.finish(&shares[1]).unwrap(), b.finish(&shares[0]).unwrap()]
    }

    fn agree([one, other]: &[Key; 2]) -> bool {
        let tag = one.prove(Side::Initiator, b"request", b"reply");
        let proven = other.is_proven(&tag, Side::Initiator, b"request", b"reply");
        assert!(!other.is_proven(&tag, Side::Responder, b"request", b"reply"));
        assert!(!other.is_proven(&tag, Side::Initiator, b"requestr", b"eply"));
        assert!(!other.is_proven(&tag, Side::Initiator, b"", b"reply"));
        proven
    }

    #[test]
    fn the_secret_and_both_parties_make_the_proof() {
        let (a, b) = (party(1, 0x0012_3456), party(2, 0x0065_4321));
        for secret in [0, 1, 0x00ff_ffff] {
            assert!(agree(&keys([secret; 2], [a; 2], [b; 2])));
            assert!(!agree(&keys([secret, secret ^ 1], [a; 2], [b; 2])));
        }
        assert!(!agree(&keys([7; 2], [a; 2], [b, party(3, b.qpn)])), "another address");
        assert!(!agree(&keys([7; 2], [a, party(1, 7)], [b; 2])), "another number");
    }

    #[test]
    fn a_claim_is_about_one_number() {
        let (a, b) = (party(1, 5), party(2, 6));
        let [one, other] = keys([7; 2], [a; 2], [b; 2]);
        let tag = one.claim(Side::Initiator, 0x0012_3456, b"request", b"reply");
        assert_ne!(tag, one.prove(Side::Initiator, b"request", b"reply"));
        let (request, reply) = (b"request".to_vec(), b"reply".to_vec());
        let mut claim = Claim { key: other, side: Side::Initiator, request, reply, tag };
        assert!(claim.is_about(0x0012_3456));
        assert!(!claim.is_about(0x0012_3457));
        claim.side = Side::Responder;
        assert!(!claim.is_about(0x0012_3456));
    }

    #[test]
    fn every_time_is_another() {
        let (a, b) = (party(1, 5), party(2, 6));
        let share = || Opening::new(Side::Initiator, 7, &a, &b).unwrap().share;
        assert_ne!(share(), share());
        assert_ne!(keys([7; 2], [a; 2], [b; 2])[0].0, keys([7; 2], [a; 2], [b; 2])[0].0);
    }

    #[test]
    fn invalid_shares_give_no_key() {
        let (a, b) = (party(1, 5), party(2, 6));
        let open = |side| Opening::new(side, 7, &a, &b).unwrap();
        let own = open(Side::Initiator);
        let share = own.share;
        assert!(own.finish(&share).is_none(), "its own, reflected");
        let mut found = 0;
        for noise in 0..=u8::MAX {
            found += u32::from(open(Side::Initiator).finish(&[noise; SHARE]).is_some());
        }
        assert!(found < 2, "one begins with the right letter");
    }

    #[test]
    fn tries_run_out_and_come_back() {
        let start = Time::default().plus(Duration::from_secs(1000));
        let mut tries = Tries::default();
        let mut count = |at| std::iter::from_fn(|| tries.take(at).then_some(())).count();
        assert_eq!(count(start), 64);
        assert_eq!(count(start.plus(Duration::from_millis(249))), 0);
        assert_eq!(count(start.plus(Duration::from_millis(250))), 1);
        assert_eq!(count(start.plus(Duration::from_millis(1250))), 4);
        assert_eq!(count(start.plus(Duration::from_secs(10_000))), 64);
    }
}
