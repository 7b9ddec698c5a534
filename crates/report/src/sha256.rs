//! SHA-256 and base64, for the hashes in the page's Content-Security-Policy.

/// The hash of `data` as a CSP source: `sha256-…` (CSP Level 3, 2.3.1).
pub(crate) fn source(data: &str) -> String {
    format!("'sha256-{}'", base64(&digest(data.as_bytes())))
}

/// FIPS 180-4, 6.2.
fn digest(data: &[u8]) -> [u8; 32] {
    let constants = roots(64, f64::cbrt);
    let mut state: [u32; 8] = [0; 8];
    state.copy_from_slice(&roots(8, f64::sqrt));
    let mut message = data.to_vec();
    message.push(0x80);
    while message.len() % 64 != 56 {
        message.push(0);
    }
    message.extend((data.len() as u64 * 8).to_be_bytes());
    for block in message.chunks_exact(64) {
        let mut words = [0_u32; 64];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        for at in 16..64 {
            let (early, late) = (words[at - 15], words[at - 2]);
            let s0 = early.rotate_right(7) ^ early.rotate_right(18) ^ (early >> 3);
            let s1 = late.rotate_right(17) ^ late.rotate_right(19) ^ (late >> 10);
            let sum = words[at - 16].wrapping_add(s0).wrapping_add(words[at - 7]);
            words[at] = sum.wrapping_add(s1);
        }
        let mut v = state;
        for (word, constant) in words.iter().zip(&constants) {
            let s1 = v[4].rotate_right(6) ^ v[4].rotate_right(11) ^ v[4].rotate_right(25);
            let choice = (v[4] & v[5]) ^ (!v[4] & v[6]);
            let sum = v[7].wrapping_add(s1).wrapping_add(choice);
            let first = sum.wrapping_add(*constant).wrapping_add(*word);
            let s0 = v[0].rotate_right(2) ^ v[0].rotate_right(13) ^ v[0].rotate_right(22);
            let majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
            let second = s0.wrapping_add(majority);
            v = [
                first.wrapping_add(second),
                v[0],
                v[1],
                v[2],
                v[3].wrapping_add(first),
                v[4],
                v[5],
                v[6],
            ];
        }
        for (total, value) in state.iter_mut().zip(v) {
            *total = total.wrapping_add(value);
        }
    }
    let mut bytes = [0; 32];
    for (to, word) in bytes.chunks_exact_mut(4).zip(state) {
        to.copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

/// The first 32 bits of the fractional parts of the roots of the first primes (FIPS 180-4, 4.2.2 and 5.3.3). The test
/// vectors show that double precision suffices.
fn roots(count: usize, root: fn(f64) -> f64) -> Vec<u32> {
    let is_prime = |number: &u32| (2..*number).all(|factor| number % factor != 0);
    let primes = (2..).filter(is_prime).take(count);
    primes.map(|prime| (root(f64::from(prime)).fract() * 4_294_967_296.0) as u32).collect()
}

/// RFC 4648, 4.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - chunk.len()));
        for at in 0..4 {
            let digit = bits >> (18 - 6 * at) & 63;
            text.push(if at <= chunk.len() { ALPHABET[digit as usize] as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(data: &[u8]) -> String {
        digest(data).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// From FIPS 180-4's examples.
    #[test]
    fn digests_match_the_test_vectors() {
        assert_eq!(hex(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let two = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(two), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
        let million = vec![b'a'; 1_000_000];
        assert_eq!(
            hex(&million),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"
        );
    }

    #[test]
    fn base64_pads() {
        assert_eq!(
            ["", "f", "fo", "foo", "foob"].map(|it| base64(it.as_bytes())),
            ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]
        );
    }
}
