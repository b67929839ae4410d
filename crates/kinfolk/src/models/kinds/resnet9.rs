//! ResNet-9, after David Page's network for CIFAR-10: 3 × 3 convolutions of 64, 128, 256 and 512 filters, each normalised
//! and rectified, three pools, and two residual blocks of two convolutions; the largest of every channel over the image,
//! one dense layer without bias, and an eighth of its scores.

use super::super::layers::{Builder, Norm, Padding, Pooled, Sequence};
use super::*;

choices! {
    /// Normalisation of channels.
    pub enum ResnetNorm { Group = "group", Batch = "batch" }
}

settings! {
    /// The settings of the model `resnet9`.
    pub struct Resnet9Settings {
        /// filters of the first convolution
        width: usize [1..=1 << 12] = 64,
        /// normalisation of channels; batch averages running statistics, which fit no client where clients differ
        norm: ResnetNorm = "group",
        /// groups of channels for norm = "group"; where channels do not divide so, the most that divide both
        groups: usize [1..=1 << 16] = 32,
        /// share of each training target that is spread evenly over all classes
        label_smoothing: f64 [0.0..=0.99] = 0.0,
        /// numbers to compute in and to send
        precision: Precision = "f32",
    }
}

impl ModelSettings for Resnet9Settings {
    const NAME: &str = "resnet9";
    const SUMMARY: &str = "residual network of eight convolutions and a dense layer";
    const READS: Reads = Reads::Images;
    const ABILITY: Ability = Ability::Rows;

    fn build(self, data: DataShape) -> Result<Box<dyn Model>> {
        let network = self.network(data)?;
        let (precision, smoothing) = (self.precision, self.label_smoothing);
        Ok(Box::new(NetworkModel { smoothing, ..NetworkModel::new(network, data, precision) }))
    }
}

impl Resnet9Settings {
    fn network(&self, data: DataShape) -> Result<Sequence> {
        let mut builder = Builder::new(image_size(Self::NAME, data)?, "use images of at least 8 × 8, or cnn");
        let width = self.width;
        let norm = match self.norm {
            ResnetNorm::Batch => Norm::Batch,
            ResnetNorm::Group => Norm::Group(self.groups),
        };
        let block = |builder: &mut Builder, name: &str, filters: usize| {
            builder.convolve(&format!("{name}.convolution"), filters, [3, 1], Padding::Same, false)?;
            builder.normalise(&format!("{name}.norm"), norm);
            Ok(())
        };
        let layers = [("layer1", 2, true), ("layer2", 4, false), ("layer3", 8, true)];
        block(&mut builder, "begin", width)?;
        for (name, times, residual) in layers {
            let filters = times * width;
            block(&mut builder, name, filters)?;
            builder.pool(2, Padding::Valid, Pooled::Largest)?;
            if residual {
                builder.residual(|builder| {
                    block(builder, &format!("{name}.residual1"), filters)?;
                    block(builder, &format!("{name}.residual2"), filters)
                })?;
            }
        }
        builder.pool_all(Pooled::Largest);
        builder.dense("dense", data.classes, false, false);
        builder.scale(0.125);
        Ok(builder.build())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::trainer::testing::*;
    use crate::rng::Key;

    #[test]
    fn gradients_are_those_of_differences() {
        let client = client(128, numbers("images", 3 * 128), &[2, 0, 1]);
        for (width, norm) in [(2, "group"), (2, "batch"), (8, "group"), (8, "batch")] {
            let settings = format!("width = {width}\nnorm = \"{norm}\"\nlabel_smoothing = 0.2\nprecision = \"f64\"");
            assert_gradient(&*build(Resnet9Settings::MODEL, &settings, images([2, 8, 8], 3)).unwrap(), &client);
        }
    }

    /// Numbers computed once with PyTorch 2.15 in f64.
    #[test]
    fn batches_are_those_of_pytorch() {
        let settings = "width = 2\nnorm = \"batch\"\nlabel_smoothing = 0.1\nprecision = \"f64\"";
        let sums = [
            8.057726816265456e-01,
            6.270430659422529e-01,
            -2.321174543781699e-01,
            3.225581268111085e-01,
            6.024287981995143e-01,
            -4.144547070011026e-02,
            2.422777321491794e-01,
            5.435396377220154e-02,
            1.342704446929788e-02,
            1.153050701098945e-01,
            1.835900657209745e-01,
            -1.908966887099896e-01,
            4.696300767650327e-02,
            5.376138702971314e-01,
            1.018710251409178e-01,
            2.19001624185889e-01,
            6.555979201012413e-01,
            -1.004350366681251e-01,
            -2.525205241984815e-02,
            -1.134020463301865e-02,
            -3.056220773567705e-02,
            4.51186857553229e-03,
            7.56734056256056e-02,
            4.172840699083389e-02,
            -1.571693247420191e-02,
        ];
        let model = build(Resnet9Settings::MODEL, settings, images([1, 8, 8], 3)).unwrap();
        assert_known(&*model, 64, &[2, 0, 1], 1.09196094607471, &sums);
    }

    #[test]
    fn running_statistics_are_those_of_pytorch() {
        let model =
            build(Resnet9Settings::MODEL, "width = 2\nnorm = \"batch\"\nprecision = \"f64\"", images([1, 8, 8], 3))
                .unwrap();
        let tensors = &model.layout().tensors;
        let learned = tensors.iter().find(|tensor| tensor.name == "begin.norm.mean").unwrap().offset;
        let mut params: Vec<f64> = (0..learned).map(|i| 0.4 * (1.0 + i as f64).sin()).collect();
        params.extend(&model.initialise(&mut Key::new(0).rng()).unwrap()[learned..]);
        let client = client(64, (0..192).map(|i| (2.0 * f64::from(i)).cos()).collect(), &[2, 0, 1]);
        let after = trained(&*model, &params, &client, 1, 0.1);
        let sum = |name: &str| -> f64 {
            let tensor = tensors.iter().find(|tensor| tensor.name == name).unwrap();
            after[tensor.range()].iter().sum()
        };
        for (name, wanted) in [
            ("begin.norm.mean", -0.00013835835003970267),
            ("begin.norm.variance", 1.8151568842380428),
            ("layer3.residual2.norm.mean", -0.025091028182209287),
            ("layer3.residual2.norm.variance", 14.414858492397315),
        ] {
            assert!((sum(name) - wanted).abs() < 1e-12, "{name}: {} for {wanted}", sum(name));
        }
    }

    #[test]
    fn training_lowers_the_loss_alike_in_both_precisions() {
        for norm in ["group", "batch"] {
            assert_training(
                Resnet9Settings::MODEL,
                &format!("width = 8\nnorm = \"{norm}\"\nprecision = \"f64\""),
                2,
                1e-3,
            );
        }
    }

    #[test]
    fn images_that_are_too_small_are_refused() {
        let small = build(Resnet9Settings::MODEL, "width = 2", images([3, 7, 9], 3)).err().unwrap().to_string();
        assert!(small.contains("images of 7 × 9 are too small: 1 × 2 are left where a pool"), "{small}");
        assert!(!small.contains("padding") && !small.contains("kernel"), "{small}");
    }
}
