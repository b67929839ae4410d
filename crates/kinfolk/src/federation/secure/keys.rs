//! Who a machine is, the keys it has in a run, and what two machines derive of these.

use super::{Digest, Seed, random};
use crate::error::{Error, Result};
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{ChaCha20Poly1305, Nonce};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use hkdf::Hkdf;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use x25519_dalek::{PublicKey, StaticSecret};

/// By which other machines know a machine over all runs: an Ed25519 key.
pub(crate) struct Identity(SigningKey);

impl Identity {
    pub(crate) fn of(secret: &Seed) -> Self {
        Self(SigningKey::from_bytes(secret))
    }

    /// The public key.
    pub(crate) fn public(&self) -> Seed {
        self.0.verifying_key().to_bytes()
    }
}

/// The secrets of a machine in a run.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Keys {
    /// By which parcels are sealed.
    sealing: Seed,
    /// From which masks follow.
    masking: Seed,
}

impl std::fmt::Debug for Keys {
    /// Nothing of them, wherever that is written.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys")
    }
}

/// What a machine shows of itself: its keys for a run, and who says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// The public key of its identity.
    pub(crate) identity: Seed,
    /// The public keys of the run.
    pub(crate) sealing: Seed,
    pub(crate) masking: Seed,
    /// Number of its clients.
    pub(crate) clients: u64,
    /// The two halves of the signature of all this, for this run.
    pub(crate) signature: [Seed; 2],
}

fn public(secret: &Seed) -> Seed {
    PublicKey::from(&StaticSecret::from(*secret)).to_bytes()
}

impl Keys {
    pub(crate) fn generate() -> Result<Self> {
        Ok(Self { sealing: random()?, masking: random()? })
    }

    /// The card that shows them in the run of this digest.
    pub(crate) fn card(&self, identity: &Identity, run: &Digest, clients: u64) -> Card {
        let (sealing, masking) = (public(&self.sealing), public(&self.masking));
        let mut card = Card { identity: identity.public(), sealing, masking, clients, signature: Default::default() };
        let signature = identity.0.sign(&card.signed(run));
        card.signature = [*signature.r_bytes(), *signature.s_bytes()];
        card
    }

    /// Whether a card shows these keys.
    pub(crate) fn are_of(&self, card: &Card) -> bool {
        (public(&self.sealing), public(&self.masking)) == (card.sealing, card.masking)
    }

    /// What masks between this machine and another are made of, in the run of a roster.
    pub(crate) fn masking_with(&self, other: &Card, roster: &Digest) -> Result<Seed> {
        agree(&self.masking, &other.masking).map(|common| derive(&common, roster, &[b"masks"]))
    }

    /// By which parcels between this machine and another are sealed; with itself, those to itself.
    pub(crate) fn sealing_with(&self, other: &Card, roster: &Digest) -> Result<Seed> {
        agree(&self.sealing, &other.sealing).map(|common| derive(&common, roster, &[b"parcels"]))
    }
}

impl Card {
    fn signed(&self, run: &Digest) -> Vec<u8> {
        let clients = self.clients.to_le_bytes();
        [b"kinfolk secure sums 1", &run[..], &self.identity, &self.sealing, &self.masking, &clients].concat()
    }

    /// Whether its identity signed it for this run.
    pub(crate) fn is_signed(&self, run: &Digest) -> bool {
        let signature = Signature::from_components(self.signature[0], self.signature[1]);
        let known = VerifyingKey::from_bytes(&self.identity);
        known.is_ok_and(|known| known.verify_strict(&self.signed(run), &signature).is_ok())
    }
}

fn agree(secret: &Seed, public: &Seed) -> Result<Seed> {
    let common = StaticSecret::from(*secret).diffie_hellman(&PublicKey::from(*public));
    if !common.was_contributory() {
        return Err(Error::federation("a machine's key is none that anything secret follows from").open());
    }
    Ok(common.to_bytes())
}

/// A key for one purpose.
pub(crate) fn derive(secret: &Seed, salt: &[u8], purpose: &[&[u8]]) -> Seed {
    let mut key = Seed::default();
    // Fails for keys of more than 8160 bytes alone.
    let expanded = Hkdf::<Sha256>::new(Some(salt), secret).expand_multi_info(purpose, &mut key);
    debug_assert!(expanded.is_ok());
    key
}

const NONCE: usize = 12;

/// Seals something for who has the key. A key may seal several things: each has a random nonce, in front.
pub(crate) fn seal(key: &Seed, content: &[u8], about: &[u8]) -> Result<Vec<u8>> {
    let nonce: [u8; NONCE] = random()?;
    let sealed = ChaCha20Poly1305::new(&(*key).into())
        .encrypt(&Nonce::from(nonce), Payload { msg: content, aad: about })
        .map_err(|_| Error::federation("a parcel is too long to be sealed"))?;
    Ok([&nonce[..], &sealed].concat())
}

/// What was sealed by this key about the same; `None` for anything else.
pub(crate) fn unseal(key: &Seed, sealed: &[u8], about: &[u8]) -> Option<Vec<u8>> {
    let (nonce, sealed) = sealed.split_first_chunk::<NONCE>()?;
    ChaCha20Poly1305::new(&(*key).into()).decrypt(&Nonce::from(*nonce), Payload { msg: sealed, aad: about }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: Digest = [1; 32];
    const ROSTER: Digest = [2; 32];

    #[test]
    fn two_machines_derive_the_same_and_a_third_something_else() {
        let keys = [(); 3].map(|()| Keys::generate().unwrap());
        let identity = Identity::of(&[9; 32]);
        let [a, b, c] = keys.each_ref().map(|keys| keys.card(&identity, &RUN, 1));
        let masking = |own: usize, other: &Card| keys[own].masking_with(other, &ROSTER).unwrap();
        assert_eq!(masking(0, &b), masking(1, &a));
        assert_ne!(masking(0, &b), masking(0, &c));
        assert_ne!(masking(0, &b), keys[0].sealing_with(&b, &ROSTER).unwrap());
        assert_ne!(masking(0, &b), keys[0].masking_with(&b, &[3; 32]).unwrap());
        let nothing = Card { masking: [0; 32], ..b };
        assert!(keys[0].masking_with(&nothing, &ROSTER).is_err(), "a key of small order");
    }

    #[test]
    fn a_card_that_was_changed_is_not_signed() {
        let (keys, identity) = (Keys::generate().unwrap(), Identity::of(&[9; 32]));
        let card = keys.card(&identity, &RUN, 4);
        assert!(card.is_signed(&RUN) && keys.are_of(&card));
        assert!(!card.is_signed(&[3; 32]), "of another run");
        let other = Keys::generate().unwrap().card(&Identity::of(&[8; 32]), &RUN, 4);
        for changed in [
            Card { identity: other.identity, ..card.clone() },
            Card { sealing: other.sealing, ..card.clone() },
            Card { masking: other.masking, ..card.clone() },
            Card { clients: 5, ..card.clone() },
            Card { signature: other.signature, ..card.clone() },
            Card { identity: [0; 32], ..card.clone() },
        ] {
            assert!(!changed.is_signed(&RUN), "{changed:?}");
        }
    }

    #[test]
    fn parcels_are_read_with_their_key_and_about_the_same_alone() {
        let sealed = seal(&[1; 32], b"content", b"about").unwrap();
        assert_eq!(unseal(&[1; 32], &sealed, b"about").as_deref(), Some(&b"content"[..]));
        assert_ne!(seal(&[1; 32], b"content", b"about").unwrap(), sealed);
        assert_eq!(unseal(&[2; 32], &sealed, b"about"), None);
        assert_eq!(unseal(&[1; 32], &sealed, b"else"), None);
        assert_eq!(unseal(&[1; 32], &sealed[..11], b"about"), None);
    }

    #[test]
    fn keys_are_derived_as_rfc_5869_says() {
        // Its second test case has other lengths; this is HMAC by hand: T(1) = HMAC(HMAC(salt, secret), info ‖ 1).
        use hkdf::hmac::{Hmac, KeyInit, Mac};
        let hmac = |key: &[u8], text: &[u8]| -> Seed {
            let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key).unwrap();
            mac.update(text);
            mac.finalize().into_bytes().into()
        };
        let prk = hmac(b"salt", &[7; 32]);
        assert_eq!(derive(&[7; 32], b"salt", &[b"in", b"fo"]), hmac(&prk, b"info\x01"));
    }
}
