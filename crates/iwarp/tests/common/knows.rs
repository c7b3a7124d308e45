// SPDX-License-Identifier: MIT OR Apache-2.0

//! The words and proofs of the two ends of queue pairs to each other, written down a second time.

use std::net::IpAddr;

use hmac::{Hmac, Mac};
use rand_core::{CryptoRng, RngCore};
use sha2::Sha256;
use spake2::{Ed25519Group, Identity, Password, Spake2};

pub const SHARE: usize = 33;
pub const TAG: usize = 32;
/// An initiator's proof and claim.
pub const PROOF: usize = 2 * TAG;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Initiator,
    Responder,
}

/// A peer, or a stranger, who knows addresses and numbers of two queue pairs, and perhaps what
/// packets start from.
pub struct Knows {
    pub initiator: (IpAddr, u32),
    pub responder: (IpAddr, u32),
    pub psn: u32,
    /// The number of the other end's, which the key is not about.
    pub other: u32,
}

/// Which end of a connection one is, and what was masked.
pub struct Opening(Spake2<Ed25519Group>);

impl Knows {
    pub fn open(&self, role: Role) -> (Opening, [u8; SHARE]) {
        let secret = Password::new(self.psn.to_be_bytes());
        let [a, b] = [self.initiator, self.responder].map(|(gid, qpn)| {
            let gid = match gid {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            Identity::new(&[&gid.octets()[..], &qpn.to_be_bytes()].concat())
        });
        let (opening, share) = match role {
            Role::Initiator => Spake2::start_a_with_rng(&secret, &a, &b, System),
            Role::Responder => Spake2::start_b_with_rng(&secret, &a, &b, System),
        };
        (Opening(opening), share.try_into().unwrap())
    }

    pub fn introduction(&self, secret: u8, share: &[u8; SHARE]) -> Vec<u8> {
        introduction(secret, self.initiator.1, self.responder.1, share)
    }
}

/// Magic, version, whose secret, two numbers of 24 bits, share.
pub fn introduction(secret: u8, from: u32, to: u32, share: &[u8; SHARE]) -> Vec<u8> {
    let mut octets = b"iwarp qp\x03".to_vec();
    octets.push(secret);
    octets.extend(&from.to_be_bytes()[1..]);
    octets.extend(&to.to_be_bytes()[1..]);
    octets.extend(share);
    octets
}

pub fn share_of(introduction: &[u8]) -> [u8; SHARE] {
    introduction[16..].try_into().unwrap()
}

/// Bytes before the proof.
pub const BEGUN: usize = 10 + SHARE;

/// By one that claims the other number, too.
pub fn begin_answer(share: &[u8; SHARE]) -> Vec<u8> {
    [&b"iwarp qp\x03\x02"[..], share].concat()
}

/// Share and proof, and the claim of one that is in RTS.
pub fn answer(octets: &[u8]) -> ([u8; SHARE], [u8; TAG], Option<[u8; TAG]>) {
    let (kind, rest) = octets.strip_prefix(b"iwarp qp\x03").unwrap().split_first().unwrap();
    let (share, rest) = rest.split_first_chunk().unwrap();
    let (tag, rest) = rest.split_first_chunk().unwrap();
    let claim = (*kind == 2).then(|| rest.try_into().unwrap());
    assert!(claim.is_some() || (*kind == 1 && rest.is_empty()));
    (*share, *tag, claim)
}

pub struct Key(Vec<u8>);

impl Key {
    pub fn of(opening: Opening, theirs: [u8; SHARE]) -> Self {
        Self(opening.0.finish(&theirs).unwrap())
    }

    pub fn proof(&self, role: Role, request: &[u8], reply: &[u8]) -> [u8; TAG] {
        self.digest(role, request, reply, &[])
    }

    pub fn claim(&self, role: Role, psn: u32, request: &[u8], reply: &[u8]) -> [u8; TAG] {
        self.digest(role, request, reply, &[&b"other psn"[..], &psn.to_be_bytes()].concat())
    }

    /// All that an initiator says before its first FPDU.
    pub fn proves(&self, psn: u32, request: &[u8], reply: &[u8]) -> [u8; PROOF] {
        let proof = self.proof(Role::Initiator, request, reply);
        let claim = self.claim(Role::Initiator, psn, request, reply);
        [proof, claim].concat().try_into().unwrap()
    }

    fn digest(&self, role: Role, request: &[u8], reply: &[u8], more: &[u8]) -> [u8; TAG] {
        let mut digest = Hmac::<Sha256>::new_from_slice(&self.0).unwrap();
        digest.update(match role {
            Role::Initiator => b"iwarp qp initiator",
            Role::Responder => b"iwarp qp responder",
        });
        for words in [request, reply] {
            digest.update(&(words.len() as u64).to_be_bytes());
            digest.update(words);
        }
        digest.update(more);
        digest.finalize().into_bytes().into()
    }
}

struct System;

impl RngCore for System {
    fn next_u32(&mut self) -> u32 {
        self.next_u64() as u32
    }

    fn next_u64(&mut self) -> u64 {
        getrandom::u64().unwrap()
    }

    fn fill_bytes(&mut self, to: &mut [u8]) {
        getrandom::fill(to).unwrap();
    }

    fn try_fill_bytes(&mut self, to: &mut [u8]) -> Result<(), rand_core::Error> {
        self.fill_bytes(to);
        Ok(())
    }
}

impl CryptoRng for System {}
