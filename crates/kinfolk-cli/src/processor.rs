//! What the program says on a processor that it was not compiled for, instead of dying of an illegal instruction.
//!
//! `is_x86_feature_detected!` is of no use here: it is the constant `true` for what the compiler was told to assume
//! (.cargo/config.toml), so the processor is asked itself.

/// Instructions the program was compiled for and that this processor lacks.
#[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
pub fn lacking() -> &'static [&'static str] {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    let basic = __cpuid(1).ecx;
    // Leaves that a processor does not have repeat another one.
    let extended = if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
    lacking_in(basic, extended)
}

#[cfg(not(all(target_arch = "x86_64", target_feature = "avx2")))]
pub fn lacking() -> &'static [&'static str] {
    &[]
}

/// The same by what the processor said of itself. Plain words and constants: what runs before the check must not be
/// worth any of the instructions that it asks for.
#[cfg(any(test, all(target_arch = "x86_64", target_feature = "avx2")))]
fn lacking_in(basic: u32, extended: u32) -> &'static [&'static str] {
    const FMA: u32 = 1 << 12;
    const AVX: u32 = 1 << 28;
    const AVX2: u32 = 1 << 5;
    // Without AVX nothing of it can be used, whatever else is said.
    match (basic & FMA != 0, basic & AVX != 0 && extended & AVX2 != 0) {
        (true, true) => &[],
        (true, false) => &["AVX2"],
        (false, true) => &["FMA"],
        (false, false) => &["AVX2", "FMA"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_without_avx2_is_refused_instead_of_killed() {
        // What Nehalem, Piledriver and Haswell say.
        assert_eq!(lacking_in(0x0098_e3fd, 0), ["AVX2", "FMA"]);
        assert_eq!(lacking_in(0x3e98_320b, 0x0000_0008), ["AVX2"]);
        assert!(lacking_in(0x7ffa_fbff, 0x0000_27ab).is_empty());
        // AVX2 that the operating system or a virtual machine has switched off.
        assert_eq!(lacking_in(0x6ffa_fbff, 0x0000_27ab), ["AVX2"]);
    }

    #[test]
    fn the_processor_of_the_tests_is_not_refused() {
        assert!(lacking().is_empty());
    }
}
