import java.util.Optional;

import org.springframework.ai.chat.client.ChatClient;
import org.springframework.ai.openai.OpenAiChatModel;
import org.springframework.ai.openai.OpenAiChatOptions;
import org.springframework.ai.tool.annotation.Tool;
import org.springframework.ai.tool.annotation.ToolParam;

/** Chat completions with Spring AI: it sends all tools, and the model is shown those that fit. */
public class SpringAi {

	/** Tools of a company; objects of any number of classes may be given. */
	static class Staff {

		@Tool(description = "Lists who is on holiday on a day.")
		String onHoliday(@ToolParam(description = "the day, as 2026-03-14") String day) {
			return "Ada and Grace are on holiday on " + day;
		}

		@Tool(description = "Books a room for a meeting.")
		String bookRoom(String room, String time) {
			return room + " is booked at " + time;
		}

	}

	public static void main(String[] questions) {
		// Where toolscout serves. In a Spring Boot application: spring.ai.openai.base-url.
		String toolscout = Optional.ofNullable(System.getenv("TOOLSCOUT_URL")).orElse("http://127.0.0.1:7700");
		OpenAiChatOptions options = OpenAiChatOptions.builder()
			.baseUrl(toolscout + "/v1")
			.apiKey(Optional.ofNullable(System.getenv("OPENAI_API_KEY")).orElse("none"))
			.model("gpt-5.4-mini")
			.build();
		ChatClient client = ChatClient.create(OpenAiChatModel.builder().options(options).build());
		for (String question : questions) {
			System.out.println(client.prompt(question).tools(new Staff()).call().content());
		}
	}

}
