// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sessions: grants in the formats of serde.

use iwarp::{Stag, TaggedOffset};
use iwarp_session::{GRANT_LEN, RemoteGrant};
use serde_test::{
    Compact, Configure, Readable, Token, assert_de_tokens, assert_de_tokens_error, assert_tokens,
};

const BYTES: [u8; GRANT_LEN] =
    [0xab, 0xcd, 0xef, 0x01, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0x40];
const DIGITS: &str = "abcdef0100000000000010000000000000000040";

const EXPECTED: &str = "expected a grant of 20 bytes, or 40 hexadecimal digits";

fn length(len: usize) -> String {
    format!("invalid length {len}, {EXPECTED}")
}

fn grant() -> RemoteGrant {
    RemoteGrant::new(Stag(0xabcd_ef01), TaggedOffset(0x1000), 64)
}

#[test]
fn a_grant_is_bytes_to_machines_and_digits_to_people() {
    assert_tokens(&grant().compact(), &[Token::Bytes(&BYTES)]);
    assert_tokens(&grant().readable(), &[Token::Str(DIGITS)]);
    assert_eq!(serde_json::to_string(&grant()).unwrap(), format!("\"{DIGITS}\""));
    let upper = format!("\"{}\"", DIGITS.to_uppercase());
    assert_eq!(serde_json::from_str::<RemoteGrant>(&upper).unwrap(), grant());
}

#[test]
fn a_grant_comes_back_from_a_format_without_bytes() {
    let sequence = |octets: &[u8]| {
        let mut tokens = vec![Token::Seq { len: None }];
        tokens.extend(octets.iter().map(|&octet| Token::U8(octet)));
        tokens.push(Token::SeqEnd);
        tokens
    };
    assert_de_tokens(&grant().compact(), &sequence(&BYTES));
    for (len, wrong) in [(19, &BYTES[1..]), (21, &[&BYTES[..], &[0]].concat())] {
        let mut tokens = sequence(wrong);
        // It fails before it has seen the end.
        tokens.truncate(tokens.len() - usize::from(len == 21));
        assert_de_tokens_error::<Compact<RemoteGrant>>(&tokens, &length(len));
    }
}

#[test]
fn nonsense_is_no_grant() {
    assert_de_tokens_error::<Compact<RemoteGrant>>(&[Token::Bytes(&BYTES[1..])], &length(19));
    assert_de_tokens_error::<Compact<RemoteGrant>>(&[Token::Bytes(&[])], &length(0));
    assert_de_tokens_error::<Readable<RemoteGrant>>(&[Token::Str(&DIGITS[2..])], &length(19));
    let texts = [&DIGITS[1..], &DIGITS.replace('f', "g"), &DIGITS.replace("ab", "ä")];
    for text in texts {
        let error = serde_json::from_value::<RemoteGrant>(text.into()).unwrap_err();
        assert_eq!(error.to_string(), format!("invalid value: string \"{text}\", {EXPECTED}"));
    }
    assert_de_tokens_error::<Readable<RemoteGrant>>(&[Token::Str("")], &length(0));
    // Its end would be beyond the last tagged offset.
    const BEYOND: [u8; GRANT_LEN] = {
        let mut beyond = BYTES;
        (beyond[4], beyond[5], beyond[6], beyond[7]) = (0xff, 0xff, 0xff, 0xff);
        (beyond[8], beyond[9], beyond[10], beyond[11]) = (0xff, 0xff, 0xff, 0xff);
        beyond
    };
    let error = "a grant of memory beyond 2^64 bytes";
    assert_de_tokens_error::<Compact<RemoteGrant>>(&[Token::Bytes(&BEYOND)], error);
    assert_de_tokens_error::<Compact<RemoteGrant>>(
        &[Token::U64(7)],
        &format!("invalid type: integer `7`, {EXPECTED}"),
    );
}
