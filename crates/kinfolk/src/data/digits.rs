//! The 1797 handwritten digits of 8x8 pixels that come with the library, so that a first run needs no download.
//!
//! E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits" (1998), UCI Machine Learning Repository,
//! <https://doi.org/10.24432/C50P49>, licensed under CC BY 4.0; the part scikit-learn distributes, in its order.
//!
//! Neighbouring images share a writer, so the split goes by runs of ten: of every five runs the fifth is test
//! (357 images), the others are training (1440). Pixels of 0 to 16 are stretched to 0 to 255.

use super::*;

const IMAGES: &[u8] = include_bytes!("../../assets/digits-images.idx3.gz");
const LABELS: &[u8] = include_bytes!("../../assets/digits-labels.idx1.gz");
const SIDE: usize = 8;
const CLASSES: usize = 10;

/// The training and test images.
pub fn load() -> Result<Pools> {
    let images = idx::parse("the built-in digits", IMAGES.to_vec(), 3)?;
    let labels = idx::parse("the built-in labels", LABELS.to_vec(), 1)?;
    let is_test = |index: usize| index / 10 % 5 == 4;
    let pool = |test: bool| {
        let chosen = || (0..labels.values.len()).filter(|index| is_test(*index) == test);
        let stretch = |pixel: &u8| ((u16::from(*pixel) * 255 + 8) / 16) as u8;
        let size = SIDE * SIDE;
        let pixels = chosen().flat_map(|index| images.values[index * size..][..size].iter().map(stretch)).collect();
        let labels = chosen().map(|index| labels.values[index]).collect();
        Images::new("the built-in digits", 1, SIDE, pixels, labels, CLASSES)
    };
    Ok(Pools { train: pool(false)?, test: pool(true)?, classes: CLASSES })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_digit_is_a_zero() {
        let pools = load().unwrap();
        assert_eq!((pools.train.len(), pools.test.len()), (1440, 357));
        assert_eq!(pools.train.labels()[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        // 0 0 5 13 9 1 0 0 of 16: 5 * 255 / 16 = 79.7
        assert_eq!(pools.train.pixels(0)[..8], [0, 0, 80, 207, 143, 16, 0, 0]);
        let brightest = (0..pools.train.len()).flat_map(|index| pools.train.pixels(index)).max();
        assert_eq!(brightest, Some(&255));
    }

    #[test]
    fn the_test_pool_has_every_class() {
        let mut counts = [0; CLASSES];
        load().unwrap().test.labels().iter().for_each(|label| counts[usize::from(*label)] += 1);
        assert_eq!(counts, [35, 37, 34, 37, 34, 33, 36, 35, 39, 37]);
    }
}
