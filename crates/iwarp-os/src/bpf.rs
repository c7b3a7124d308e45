// SPDX-License-Identifier: MIT OR Apache-2.0

//! Instructions of classic BPF, of which the programs consist that choose among the sockets of a
//! group ([`attach_reuseport`](crate::sockopt::attach_reuseport)).
//!
//! A program works on one number, the *accumulator*, and returns the index of a socket. A load from
//! behind the end of the packet ends it with 0.

use libc::{
    BPF_A, BPF_ABS, BPF_ADD, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP,
    BPF_K, BPF_LD, BPF_RET, BPF_RSH, BPF_SUB, BPF_W, sock_filter,
};

/// `SKF_NET_OFF`: the offset at which the IP header begins.
pub(crate) const IP_HEADER: u32 = (-0x10_0000_i32).cast_unsigned();

/// Loads the byte at an offset.
pub(crate) const fn load_byte(offset: u32) -> sock_filter {
    plain(BPF_LD | BPF_B | BPF_ABS, offset)
}

/// Loads two bytes, in network order.
pub(crate) const fn load_half(offset: u32) -> sock_filter {
    plain(BPF_LD | BPF_H | BPF_ABS, offset)
}

/// Loads four bytes, in network order.
pub(crate) const fn load_word(offset: u32) -> sock_filter {
    plain(BPF_LD | BPF_W | BPF_ABS, offset)
}

pub(crate) const fn and(mask: u32) -> sock_filter {
    plain(BPF_ALU | BPF_AND | BPF_K, mask)
}

pub(crate) const fn add(number: u32) -> sock_filter {
    plain(BPF_ALU | BPF_ADD | BPF_K, number)
}

pub(crate) const fn subtract(number: u32) -> sock_filter {
    plain(BPF_ALU | BPF_SUB | BPF_K, number)
}

pub(crate) const fn shift_right(bits: u32) -> sock_filter {
    plain(BPF_ALU | BPF_RSH | BPF_K, bits)
}

/// Skips `yes` instructions where the accumulator equals a number, `no` elsewhere.
pub(crate) const fn if_equal(number: u32, yes: u8, no: u8) -> sock_filter {
    step(BPF_JMP | BPF_JEQ | BPF_K, yes, no, number)
}

/// Skips `yes` instructions where the accumulator is not less than a number, `no` elsewhere.
pub(crate) const fn if_not_less(number: u32, yes: u8, no: u8) -> sock_filter {
    step(BPF_JMP | BPF_JGE | BPF_K, yes, no, number)
}

/// Skips so many instructions.
pub(crate) const fn skip(instructions: u32) -> sock_filter {
    plain(BPF_JMP | BPF_JA, instructions)
}

/// Ends the program with an index.
pub(crate) const fn choose(index: u32) -> sock_filter {
    plain(BPF_RET | BPF_K, index)
}

/// Ends the program with the accumulator as the index.
pub(crate) const fn choose_accumulator() -> sock_filter {
    plain(BPF_RET | BPF_A, 0)
}

const fn plain(code: u32, k: u32) -> sock_filter {
    step(code, 0, 0, k)
}

const fn step(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each as `bpf_asm` of the kernel's `tools/bpf` encodes it.
    #[test]
    fn instructions_have_the_words_of_the_kernel() {
        let words = [
            (load_word(4), (0x20, 0, 0, 4)),
            (load_half(2), (0x28, 0, 0, 2)),
            (load_byte(1), (0x30, 0, 0, 1)),
            (load_byte(IP_HEADER + 1), (0x30, 0, 0, 0xfff0_0001)),
            (and(0xfc), (0x54, 0, 0, 0xfc)),
            (add(3), (0x04, 0, 0, 3)),
            (subtract(3), (0x14, 0, 0, 3)),
            (shift_right(4), (0x74, 0, 0, 4)),
            (if_equal(6, 1, 2), (0x15, 1, 2, 6)),
            (if_not_less(6, 1, 2), (0x35, 1, 2, 6)),
            (skip(2), (0x05, 0, 0, 2)),
            (choose(1), (0x06, 0, 0, 1)),
            (choose_accumulator(), (0x16, 0, 0, 0)),
        ];
        for (step, word) in words {
            assert_eq!((step.code, step.jt, step.jf, step.k), word);
        }
    }
}
