//! Convolutional networks of a few filters and pools, then dense layers.
//!
//! The defaults are the network of LEAF's FEMNIST: 5 × 5 convolutions of 32 and 64 filters with zeros around the image,
//! each rectified and halved by 2 × 2 pools, then 2048 hidden units and a score for every class. The network of IFCA's
//! CIFAR-10 (TensorFlow's CIFAR network, on images of 24 × 24) is `filters = [64, 64]`, `pool = 3`, `norm = "response"`,
//! `hidden = [384, 192]`.
//!
//! `norm = "group"` and `"batch"` stand between a convolution, which then has no bias, and its rectifier; `"response"`
//! stands behind the first pool and, behind the rectifier, before all others.

use super::super::layers::{Builder, Norm, Padding, Pooled, Sequence};
use super::*;

choices!(Padding { Same = "same", Valid = "valid" });

choices! {
    /// What becomes of the pixels of a pool.
    pub enum Pooling { Max = "max", Mean = "mean" }
    /// Normalisation of channels.
    pub enum CnnNorm { None = "none", Group = "group", Batch = "batch", Response = "response" }
}

settings! {
    /// The settings of the model `cnn`.
    pub struct CnnSettings {
        /// filters of each convolution
        filters: Vec<usize> [1..=1 << 16] = [32, 64],
        /// height and width of every filter
        kernel: usize [1..=64] = 5,
        /// pixels from one filter to the next
        stride: usize [1..=16] = 1,
        /// whether zeros around the image keep its size, or filters and pools stay inside
        padding: Padding = "same",
        /// height and width of the pools at every second pixel
        pool: usize [1..=16] = 2,
        /// what becomes of the pixels of a pool: the largest, or their mean
        pooling: Pooling = "max",
        /// normalisation of channels; batch averages running statistics, which fit no client where clients differ
        norm: CnnNorm = "none",
        /// groups of channels for norm = "group"; where channels do not divide so, the most that divide both
        groups: usize [1..=1 << 16] = 32,
        /// widths of the hidden dense layers
        hidden: Vec<usize> [1..=1 << 20] = [2048],
        /// chance of every hidden unit to be left out of a training step
        dropout: f64 [0.0..=0.99] = 0.0,
        /// numbers to compute in and to send
        precision: Precision = "f32",
    }
}

impl ModelSettings for CnnSettings {
    const NAME: &str = "cnn";
    const SUMMARY: &str = "convolutional network: convolutions and pools, then dense layers";
    const READS: Reads = Reads::Images;
    const ABILITY: Ability = Ability::Rows;

    fn build(self, data: DataShape) -> Result<Box<dyn Model>> {
        Ok(Box::new(NetworkModel::new(self.network(data)?, data, self.precision)))
    }
}

impl CnnSettings {
    fn network(&self, data: DataShape) -> Result<Sequence> {
        let remedy = match self.padding {
            Padding::Same => "use larger images or fewer filters",
            Padding::Valid => "use larger images, a smaller kernel or pool, fewer filters, or padding = \"same\"",
        };
        let mut builder = Builder::new(image_size(Self::NAME, data)?, remedy);
        let (kernel, stride, padding) = (self.kernel, self.stride, self.padding);
        let (pool, mean) = (self.pool, self.pooling == Pooling::Mean);
        let pooled = if mean { Pooled::Mean } else { Pooled::Largest };
        let norm = match self.norm {
            CnnNorm::Group => Some(Norm::Group(self.groups)),
            CnnNorm::Batch => Some(Norm::Batch),
            CnnNorm::None | CnnNorm::Response => None,
        };
        let responds = self.norm == CnnNorm::Response;
        for (i, &filters) in self.filters.iter().enumerate() {
            let number = i + 1;
            builder.convolve(&format!("convolution{number}"), filters, [kernel, stride], padding, norm.is_none())?;
            match norm {
                Some(norm) => {
                    builder.normalise(&format!("norm{number}"), norm);
                    builder.pool(pool, padding, pooled)?;
                }
                None if responds && i > 0 => {
                    builder.rectify();
                    builder.respond();
                    builder.pool(pool, padding, pooled)?;
                }
                None => {
                    if mean {
                        builder.rectify();
                    }
                    builder.pool(pool, padding, if mean { Pooled::Mean } else { Pooled::Rectified })?;
                    if responds {
                        builder.respond();
                    }
                }
            }
        }
        for (i, &width) in self.hidden.iter().enumerate() {
            builder.dense(&format!("dense{}", i + 1), width, true, true);
            builder.drop_out(self.dropout);
        }
        builder.dense(&format!("dense{}", self.hidden.len() + 1), data.classes, true, false);
        Ok(builder.build())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Augment, Form};
    use crate::models::trainer::testing::*;
    use crate::rng::Key;

    const TINY: &str = "filters = [2, 3]\nkernel = 3\nhidden = [5]\nprecision = \"f64\"\n";

    #[test]
    fn gradients_are_those_of_differences() {
        let shape = [2, 6, 7];
        let client = client(84, numbers("images", 3 * 84), &[2, 0, 1]);
        for more in ["", "norm = \"group\"", "norm = \"batch\"", "norm = \"response\"\npool = 3"] {
            for pooling in ["max", "mean"] {
                let settings = format!("{TINY}pooling = \"{pooling}\"\n{more}");
                assert_gradient(&*build(CnnSettings::MODEL, &settings, images(shape, 3)).unwrap(), &client);
            }
        }
        let valid = format!("{TINY}padding = \"valid\"").replace("kernel = 3", "kernel = 2");
        assert_gradient(&*build(CnnSettings::MODEL, &valid, images([1, 12, 7], 3)).unwrap(), &client);
        let blocks = TINY.replace("[2, 3]", "[8, 8]");
        assert_gradient(&*build(CnnSettings::MODEL, &blocks, images(shape, 3)).unwrap(), &client);
    }

    /// Numbers computed once with PyTorch 2.15 in f64.
    #[test]
    fn groups_are_those_of_pytorch() {
        let settings = "filters = [8, 8]\nkernel = 3\nnorm = \"group\"\ngroups = 4\nhidden = [5]\nprecision = \"f64\"";
        let sums = [
            5.636350832717555e-03,
            -1.313892705524432e-02,
            2.926947291373336e-02,
            -5.167610166659647e-03,
            -2.282348840841522e-02,
            2.807629463487468e-03,
            3.845226889048278e-02,
            1.806873381501278e-02,
            1.006345401395728e-01,
            2.184722576427919e-01,
        ];
        let model = build(CnnSettings::MODEL, settings, images([2, 8, 8], 3)).unwrap();
        assert_known(&*model, 128, &[2, 0], 1.07207555375862, &sums);
    }

    /// Numbers computed once with PyTorch 2.15 in f64: the network of IFCA's CIFAR-10, with fewer filters.
    #[test]
    fn responses_are_those_of_pytorch() {
        let settings = "filters = [8, 8]\npool = 3\nnorm = \"response\"\nhidden = [4]\nprecision = \"f64\"";
        let sums = [
            -3.619811230207932e-01,
            -2.655637967172559e-01,
            1.280225014489316e-01,
            4.800484280028564e-02,
            -4.410659381329128e-02,
            1.100618690575263e-02,
            -6.16445180695035e-02,
            -1.079357758903549e-01,
        ];
        let model = build(CnnSettings::MODEL, settings, images([3, 8, 8], 3)).unwrap();
        assert_known(&*model, 192, &[2, 0], 1.09631390571026, &sums);
    }

    #[test]
    fn the_defaults_are_femnists_network() {
        let model = build(CnnSettings::MODEL, "", images([1, 28, 28], 62)).unwrap();
        let sizes = [25 * 32, 32, 25 * 32 * 64, 64, 2048 * 3136, 2048, 62 * 2048, 62];
        let found: Vec<usize> = model.layout().tensors.iter().map(|tensor| tensor.range().len()).collect();
        assert_eq!(found, sizes);
        let cifar = "filters = [64, 64]\npool = 3\nnorm = \"response\"\nhidden = [384, 192]";
        let model = build(CnnSettings::MODEL, cifar, images([3, 24, 24], 10)).unwrap();
        let dense: Vec<&[usize]> = model.layout().tensors[4..].iter().map(|tensor| &tensor.shape[..]).collect();
        assert_eq!(dense, [&[384, 2304][..], &[384], &[192, 384], &[192], &[10, 192], &[10]]);
    }

    #[test]
    fn training_lowers_the_loss_alike_in_both_precisions() {
        for norm in ["none", "group", "batch", "response"] {
            let settings = format!("{}norm = \"{norm}\"", TINY.replace("[2, 3]", "[8, 8]"));
            assert_training(CnnSettings::MODEL, &settings, 4, 1e-4);
        }
    }

    /// A filter that hands on its pixel, and scores that hand on the pools.
    #[test]
    fn pools_take_the_largest_or_the_mean_of_what_is_rectified() {
        let score = |pooling: &str| {
            let settings =
                format!("filters = [1]\nkernel = 1\nhidden = []\nprecision = \"f64\"\npooling = \"{pooling}\"");
            let model = build(CnnSettings::MODEL, &settings, images([1, 2, 2], 2)).unwrap();
            // Filter, its bias, two weights, two biases: the second class always has a score of 0.
            let params = [1.0, 0.0, 1.0, 0.0, 0.0, 0.0];
            loss(&*model, &params, &client(4, vec![-4.0, 1.0, 2.0, 0.0], &[1]))
        };
        assert!((score("max") - (1.0 + 2f64.exp()).ln()).abs() < 1e-14);
        assert!((score("mean") - (1.0 + 0.75f64.exp()).ln()).abs() < 1e-14);
    }

    #[test]
    fn a_plain_step_is_the_step_along_the_gradient() {
        let client = client(84, numbers("images", 3 * 84), &[2, 0, 1]);
        let model = build(CnnSettings::MODEL, TINY, images([2, 6, 7], 3)).unwrap();
        let start = model.initialise(&mut Key::new(1).rng()).unwrap();
        let (_, gradient) = slope(&*model, &start, &client);
        let found = trained(&*model, &start, &client, 1, 0.25);
        let wanted: Vec<f64> = start.iter().zip(&gradient).map(|(p, g)| p - 0.25 * g).collect();
        assert!(crate::num::distance(&found, &wanted) < 1e-14);
    }

    #[test]
    fn dropout_changes_training_and_no_score() {
        let client = stripes([1, 8, 8]);
        let plain = build(CnnSettings::MODEL, TINY, images([1, 8, 8], 3)).unwrap();
        let dropping = build(CnnSettings::MODEL, &format!("{TINY}dropout = 0.5"), images([1, 8, 8], 3)).unwrap();
        let start = plain.initialise(&mut Key::new(1).rng()).unwrap();
        assert_eq!(loss(&*plain, &start, &client), loss(&*dropping, &start, &client));
        let found = trained(&*dropping, &start, &client, 3, 0.1);
        assert_ne!(found, trained(&*plain, &start, &client, 3, 0.1));
        assert_eq!(found, trained(&*dropping, &start, &client, 3, 0.1));
    }

    #[test]
    fn augmentation_changes_training_and_no_score() {
        let client = stripes([1, 8, 8]);
        let augment = Augment { flip: true, crop: 1 };
        let mut shape = images([1, 8, 8], 3);
        let plain = build(CnnSettings::MODEL, TINY, shape).unwrap();
        shape.form = Form::Image { channels: 1, height: 8, width: 8, augment };
        let moving = build(CnnSettings::MODEL, TINY, shape).unwrap();
        let start = plain.initialise(&mut Key::new(1).rng()).unwrap();
        assert_eq!(loss(&*plain, &start, &client), loss(&*moving, &start, &client));
        let found = trained(&*moving, &start, &client, 3, 0.1);
        assert_ne!(found, trained(&*plain, &start, &client, 3, 0.1));
        assert_eq!(found, trained(&*moving, &start, &client, 3, 0.1));
    }

    #[test]
    fn images_that_are_too_small_are_refused() {
        let refused = |settings: &str, shape| build(CnnSettings::MODEL, settings, shape).err().unwrap().to_string();
        let small = refused("padding = \"valid\"", images([1, 8, 8], 3));
        assert!(small.contains("images of 8 × 8 are too small: 2 × 2 are left where a kernel of 5 × 5"), "{small}");
        assert!(small.contains("padding = \"same\""), "{small}");
        let small = refused("filters = [2, 2, 2]", images([1, 4, 4], 3));
        assert!(small.contains("1 × 1 are left where a pool of 2 × 2 follows"), "{small}");
        assert!(!small.contains("padding"), "{small}");
    }

    #[test]
    fn fewer_than_two_classes_are_refused() {
        let refused = |classes| build(CnnSettings::MODEL, "", images([1, 8, 8], classes)).err().unwrap().to_string();
        assert!(refused(0).contains("the target of this data is a number"), "{}", refused(0));
        assert!(refused(1).contains("this data has only one"), "{}", refused(1));
    }
}
