#include "app/cli/command.h"

int main(int argc, char** argv) { return llmgen::app::run_cli(argc, argv); }
