//! What clients of this computer compute on.

use super::*;
use kinfolk::compute::Backend;
use kinfolk::experiment::Experiment;

/// What clients of this computer compute on.
#[derive(clap::Args)]
pub struct OnDevice {
    /// What clients compute on; auto takes a CUDA device where there is one [default: as the file says, or $KINFOLK_DEVICE, or cpu]
    #[arg(long, value_name = "DEVICE", value_parser = ["cpu", "cuda", "auto"])]
    device: Option<String>,
    /// What a device keeps of the factors of convolutions: f32, or tf32, which is faster [default: as the file says, or f32]
    #[arg(long, value_name = "PRECISION", value_parser = ["f32", "tf32"])]
    device_precision: Option<String>,
}

impl OnDevice {
    /// The backend that is asked for, here, in the experiment, or in the environment.
    pub fn backend(&self, experiment: Option<&Experiment>) -> Result<Arc<dyn Backend>> {
        let top = experiment.map(|experiment| &experiment.top);
        let environment = || std::env::var("KINFOLK_DEVICE").ok().filter(|device| !device.is_empty());
        let of_file = top.and_then(|top| top.device).map(|device| device.to_string());
        let device = self.device.clone().or(of_file).or_else(environment).unwrap_or_else(|| "cpu".into());
        let of_file = top.and_then(|top| top.device_precision).map(|precision| precision.to_string());
        let precision = self.device_precision.clone().or(of_file).unwrap_or_else(|| "f32".into());
        kinfolk_cuda::backend(&device, &precision, say)
    }
}
