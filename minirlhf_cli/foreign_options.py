"""Options that other libraries have: what each is called here, or that it is not here."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from minirlhf.core.errors import UserError

_SPLIT = "--batch-size is the whole batch, which --micro-batch-size splits"
_RECIPE = "the recipe decides it: minirlhf train RECIPE (minirlhf recipes lists them)"
_VLLM = "completions are sampled by the library itself; an exported script (minirlhf export) can use vLLM"
_ATTENTION = "the attention is the library's own, or that of the model"
_PADDING = "batches are padded by the library, whose masks leave padding out"
_ONE_MACHINE = "minirlhf trains on one device; export the run (minirlhf export) to train on more"

#: An option of another library, with underscores -> its counterparts here, the first one that a command has counts, or
#: a sentence on why there is none. A counterpart may be followed by a remark.
COUNTERPARTS: dict[str, tuple[str, ...]] = {
    "lr": ("--learning-rate",),
    "peak_lr": ("--learning-rate",),
    "wd": ("--weight-decay",),
    "scheduler": ("--lr-scheduler-type",),
    "lr_scheduler": ("--lr-scheduler-type",),
    "warmup_ratio": ("--warmup-steps, a number of steps",),
    "num_train_epochs": ("--epochs",),
    "num_epochs": ("--epochs",),
    "max_epochs": ("--epochs",),
    "steps": ("--max-steps",),
    "num_steps": ("--max-steps",),
    "max_iters": ("--max-steps",),
    "total_training_steps": ("--max-steps",),
    "per_device_train_batch_size": (f"--micro-batch-size: {_SPLIT}",),
    "per_device_eval_batch_size": ("--batch-size", "evaluation during training has a fixed batch size"),
    "train_batch_size": ("--batch-size",),
    "micro_train_batch_size": ("--micro-batch-size",),
    "gradient_accumulation_steps": (f"--micro-batch-size: {_SPLIT}",),
    "gradient_checkpointing": ("to save memory, lower --micro-batch-size or train an adapter with --lora-r",),
    "gradient_clipping": ("--max-grad-norm",),
    "max_norm": ("--max-grad-norm",),
    "optim": ("the optimizer is AdamW",),
    "adam_beta1": ("AdamW keeps PyTorch's betas",),
    "adam_beta2": ("AdamW keeps PyTorch's betas",),
    "fp16": ("--bf16 for mixed precision, --dtype for the weights",),
    "torch_dtype": ("--dtype",),
    "precision": ("--dtype",),
    "load_in_4bit": ("quantised weights are not trained here; --lora-r trains an adapter",),
    "load_in_8bit": ("quantised weights are not trained here; --lora-r trains an adapter",),
    "attn_implementation": (_ATTENTION,),
    "flash_attn": (_ATTENTION,),
    "use_flash_attention_2": (_ATTENTION,),
    "mixed_precision": ("--bf16",),
    "torch_compile": ("models are not compiled here",),
    "use_liger_kernel": ("the losses are plain PyTorch",),
    "optimizer": ("the optimizer is AdamW",),
    "actor_learning_rate": ("--learning-rate",),
    "critic_learning_rate": ("--critic-learning-rate-ratio, a multiple of --learning-rate",),
    "critic_lr": ("--critic-learning-rate-ratio, a multiple of --learning-rate",),
    "actor_lr": ("--learning-rate",),
    "warmup": ("--warmup-steps, a number of steps",),
    "grad_clip": ("--max-grad-norm",),
    "bs": ("--batch-size",),
    "batch": ("--batch-size",),
    "rollout_batch_size": ("--batch-size, the prompts of a step",),
    "generation_batch_size": ("--batch-size, the prompts of a step, each with --num-generations completions",),
    "steps_per_generation": ("--num-iterations", "every step samples anew"),
    "ppo_mini_batch_size": ("--num-minibatches, their number",),
    "padding_side": (_PADDING,),
    "pad_token": (_PADDING,),
    "pad_to_multiple_of": (_PADDING,),
    "group_by_length": (_PADDING,),
    "dataloader_num_workers": ("data are read in one process, before the run",),
    "dataset_num_proc": ("data are read in one process, before the run",),
    "num_workers": ("data are read in one process, before the run",),
    "shuffle_dataset": ("every pass is in a new order, which --seed decides",),
    "data_seed": ("--seed",),
    "model_name_or_path": ("--model",),
    "model_name": ("--model",),
    "pretrain": ("--model",),
    "ref_model_name_or_path": ("--ref-model",),
    "reward_model_path": ("--reward-model",),
    "reward_model_name_or_path": ("--reward-model",),
    "teacher_model_name_or_path": ("--teacher",),
    "output_dir": ("--out",),
    "save_path": ("--out",),
    "output_path": ("--json",),
    "dataset": ("--data",),
    "dataset_name": ("--data",),
    "dataset_path": ("--data",),
    "train_file": ("--data",),
    "dataset_train_split": ("--split",),
    "eval_dataset": ("--eval-data",),
    "validation_file": ("--eval-data",),
    "test_size": ("--eval-fraction",),
    "held_out": ("--eval-fraction",),
    "max_samples": ("--limit",),
    "dataset_text_field": ("--messages-field",),
    "max_seq_length": ("--max-length",),
    "max_len": ("--max-length",),
    "cutoff_len": ("--max-length",),
    "block_size": ("--max-length", "--context"),
    "max_prompt_length": ("--max-length", "a prompt is never cut; --drop-long true leaves out long ones"),
    "max_new_tokens": ("--max-completion-length",),
    "max_tokens": ("--max-completion-length",),
    "generate_max_len": ("--max-completion-length",),
    "response_length": ("--max-completion-length",),
    "n_samples_per_prompt": ("--num-generations",),
    "rollout_n": ("--num-generations",),
    "num_return_sequences": ("--num-generations",),
    "group_size": ("--num-generations",),
    "kl_coef": ("--beta",),
    "init_kl_coef": ("--beta",),
    "kl_loss_coef": ("--beta",),
    "cliprange": ("--epsilon",),
    "clip_range": ("--epsilon",),
    "eps_clip": ("--epsilon",),
    "clip_ratio": ("--epsilon",),
    "clip_ratio_high": ("--epsilon-high",),
    "eps_clip_high": ("--epsilon-high",),
    "num_ppo_epochs": ("--num-iterations",),
    "ppo_epochs": ("--num-iterations",),
    "num_mini_batches": ("--num-minibatches",),
    "entropy_coeff": ("--entropy-coef",),
    "simpo_gamma": ("--gamma",),
    "loss": (
        "the trainer's name is the loss; your own is minirlhf train offline --loss FILE.py:NAME, or train reward --loss",
    ),
    "loss_type": ("--loss", "the recipe decides the loss: minirlhf train RECIPE, such as dapo or dr_grpo"),
    "advantage_estimator": ("the recipe decides it: minirlhf train RECIPE, such as rloo or reinforce_pp",),
    "adv_estimator": ("the recipe decides it: minirlhf train RECIPE, such as rloo or reinforce_pp",),
    "importance_sampling_level": (_RECIPE,),
    "use_kl_loss": (_RECIPE,),
    "kl_penalty": (_RECIPE,),
    "kl_loss_type": (_RECIPE,),
    "kl_estimator": (_RECIPE,),
    "mask_truncated_completions": (_RECIPE,),
    "gae_lambda": ("--lam", "only recipes with a critic have it: minirlhf train ppo"),
    "cliprange_low": ("--epsilon",),
    "clip_eps": ("--epsilon",),
    "clip": ("--epsilon",),
    "target_kl": ("no step is stopped by its KL; --beta and --epsilon hold the policy",),
    "sync_ref_model": ("the reference stays as it is",),
    "scale_rewards": ("the recipe decides it: grpo divides by the group's standard deviation, dr_grpo does not",),
    "reward_funcs": ("--grader, also FILE.py:NAME",),
    "reward_fn": ("--grader, also FILE.py:NAME",),
    "reward_function": ("--grader, also FILE.py:NAME",),
    "input_key": ("--prompt-field",),
    "prompt_key": ("--prompt-field",),
    "prompt_column": ("--prompt-field",),
    "output_key": ("--completion-field",),
    "response_column": ("--completion-field",),
    "chosen_key": ("--chosen-field",),
    "rejected_key": ("--rejected-field",),
    "label_key": ("--answer-field",),
    "answer_column": ("--answer-field",),
    "train_files": ("--data",),
    "val_files": ("--eval-data",),
    "dataset_test_split": ("--eval-data",),
    "eval_split": ("--eval-data",),
    "reward_weights": ("--grader A*0.9+B*0.1",),
    "tasks": ("--task",),
    "metric_for_best_model": ("--load-best-model-at-end, which takes the run's own measure on the eval set",),
    "early_stopping_patience": ("--load-best-model-at-end keeps the best checkpoint; no run stops early",),
    "save_best": ("--load-best-model-at-end",),
    "eval_strategy": ("--eval-steps",),
    "evaluation_strategy": ("--eval-steps",),
    "eval_every": ("--eval-steps",),
    "save_strategy": ("--save-steps",),
    "save_every": ("--save-steps",),
    "logging_steps": ("every step is logged, in metrics.jsonl",),
    "resume_from_checkpoint": ("--resume",),
    "wandb_project": ("--report-to wandb; WANDB_PROJECT names the project",),
    "use_wandb": ("--report-to wandb",),
    "run_name": ("--out; the run is called as its folder is",),
    "use_peft": ("--lora-r",),
    "lora_rank": ("--lora-r",),
    "lora_target_modules": ("adapters are on all linear layers",),
    "use_vllm": (_VLLM,),
    "vllm_mode": (_VLLM,),
    "vllm_gpu_memory_utilization": (_VLLM,),
    "gpu_memory_utilization": (_VLLM,),
    "tensor_parallel_size": (_VLLM,),
    "nproc_per_node": (_ONE_MACHINE,),
    "num_gpus": (_ONE_MACHINE,),
    "log_completions": ("--num-logged-samples",),
    "num_completions_to_print": ("--num-logged-samples",),
    "save_total_limit": ("the two newest checkpoints are kept",),
    "push_to_hub": ("the model is a folder; upload it with huggingface_hub",),
    "hub_model_id": ("the model is a folder; upload it with huggingface_hub",),
    "max_seq_len": ("--max-length",),
    "seq_len": ("--max-length",),
    "model_max_length": ("--max-length",),
    "prompt_max_len": ("--max-length", "a prompt is never cut; --drop-long true leaves out long ones"),
    "temp": ("--temperature",),
    "n": ("--num-generations",),
    "repetition_penalty": ("samples come from the policy itself, so that their probabilities are known",),
    "num_beams": ("samples come from the policy itself, so that their probabilities are known",),
    "response_template": ("--train-on assistant, the default; the chat template says what the assistant wrote",),
    "deepspeed": (_ONE_MACHINE,),
    "fsdp": (_ONE_MACHINE,),
    "num_processes": (_ONE_MACHINE,),
    "zero_stage": (_ONE_MACHINE,),
    "trust_remote_code": ("code of a model folder is never run",),
    "neftune_noise_alpha": ("there is no noise on embeddings here",),
    "assistant_only_loss": ("--train-on assistant, the default",),
    "completion_only_loss": ("--train-on last",),
    "apply_chat_template": ("the chat template is always applied; --chat-template FILE replaces it",),
}


def hint(kind: str, name: str, options: Collection[str]) -> UserError | None:
    """Return the error for an option that another library has, or whose name is near none here; else None.

    Args:
        kind: what is unknown: ``option of 'minirlhf train sft'``.
        name: as the user wrote it, ``--lr`` or ``lr``.
        options: the options that there are, with dashes in front.
    """
    key = name.lstrip("-").replace("-", "_")
    for text in COUNTERPARTS.get(key, ()):
        option = text.split()[0].rstrip(",:;")
        if option.startswith("--") and option not in options:
            continue
        here = f"here it is {text}" if option.startswith("--") else f"it is not here: {text}"
        expected = option if option.startswith("--") else None
        return UserError(
            f"unknown {kind} {name!r}: {here}", argument=kind, value=name, expected=expected, problem="unknown"
        )
    plain = [option.lstrip("-").replace("-", "_") for option in options]
    if len(plain) <= 20 or difflib.get_close_matches(key, plain, n=1, cutoff=0.6):
        return None
    message = f"unknown {kind} {name!r}: no name here is like it (--help lists them)"
    return UserError(message, argument=kind, value=name, problem="unknown")
