//! Which instructions loops run with, chosen when the program starts.
//!
//! A loop is written once, over arrays of a fixed length that the compiler turns into registers, and compiled for two kinds
//! of x86-64: with AVX2 and FMA, and without. Only what is inlined into a dispatched closure is: closure and loops are
//! marked `#[inline(always)]`. A dispatched call takes a nanosecond or two and is never inlined itself, so it belongs
//! around the loop over short rows. Slices get to a loop as a function's arguments: the compiler knows that those do not
//! overlap, but of what a closure captures it does not.

use crate::error::{Error, Result};
use crate::num::Real;

/// The variable of the environment by which tests choose.
const VARIABLE: &str = "KINFOLK_CPU";

/// What the loop that is handed this is compiled for; a constant there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cpu {
    fma: bool,
}

impl Cpu {
    /// `a·b + c`, in one rounding where there is an instruction for it; in software that would crawl.
    #[inline(always)]
    pub(crate) fn mul_add<T: Real>(self, a: T, b: T, c: T) -> T {
        if self.fma { a.mul_add(b, c) } else { a * b + c }
    }
}

/// What this CPU has.
#[cfg(target_arch = "x86_64")]
static FOUND: std::sync::LazyLock<Option<pulp::x86::V3>> = std::sync::LazyLock::new(pulp::x86::V3::try_new);

/// What loops use of it.
#[cfg(target_arch = "x86_64")]
static AVX2: std::sync::LazyLock<Option<pulp::x86::V3>> = std::sync::LazyLock::new(|| match wanted().as_deref() {
    Some("baseline") => None,
    _ => *FOUND,
});

/// Runs a closure, `dispatch!(|cpu| …)`, as it is compiled for this CPU.
macro_rules! dispatch {
    ($kernel:expr) => {
        $crate::num::cpu::run(
            #[inline(always)]
            $kernel,
        )
    };
}
pub(crate) use dispatch;

/// See [`dispatch`].
#[inline(always)]
pub(crate) fn run<R>(kernel: impl FnOnce(Cpu) -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = *AVX2 {
        return avx2.vectorize(
            #[inline(always)]
            || kernel(Cpu { fma: true }),
        );
    }
    kernel(Cpu { fma: cfg!(target_arch = "aarch64") })
}

/// Runs work of the matrix library, whose products leave the upper halves of registers in use, and clears them: whatever is
/// compiled without AVX, which is most of the program, would wait for them at every instruction.
#[inline(always)]
pub(crate) fn clearing<R>(work: impl FnOnce() -> R) -> R {
    let result = work();
    #[cfg(target_arch = "x86_64")]
    if let Some(found) = *FOUND {
        found.avx._mm256_zeroupper();
    }
    result
}

fn wanted() -> Option<String> {
    std::env::var(VARIABLE).ok()
}

/// What this run's loops are compiled for: `avx2+fma`, `neon` or `baseline`.
pub fn instructions() -> Result<&'static str> {
    match wanted().as_deref() {
        None | Some("" | "auto" | "baseline") => {}
        Some(other) => return Err(Error::settings(format!("{VARIABLE}: got {other:?}, want auto or baseline"))),
    }
    Ok(match run(|cpu| cpu.fma) {
        true if cfg!(target_arch = "aarch64") => "neon",
        true => "avx2+fma",
        false => "baseline",
    })
}
